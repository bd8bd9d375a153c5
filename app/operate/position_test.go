package operate

import (
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func TestAPositionIsAheadWhenItLeavesSomethingOut(t *testing.T) {
	const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	gtids := func(f event.Flavor, text string) event.Position {
		set, err := event.ParseGTIDSet(f, text)
		testbed.Must(t, err)
		return event.Position{Flavor: f, Server: "a", GTIDs: set, File: "binlog.000112", Pos: 4096}
	}
	place := func(server, file string, pos uint64) event.Position {
		return event.Position{Flavor: event.MySQL, Server: server, File: file, Pos: pos}
	}
	for _, c := range []struct {
		name     string
		from, to event.Position
		want     bool
	}{
		{"no position yet", event.Position{}, gtids(event.MariaDB, "0-2-57"), false},
		{"the same", gtids(event.MariaDB, "0-2-57"), gtids(event.MariaDB, "0-2-57"), false},
		{"back", gtids(event.MariaDB, "0-2-57"), gtids(event.MariaDB, "0-2-56"), false},
		{"forward", gtids(event.MariaDB, "0-2-57"), gtids(event.MariaDB, "0-2-58"), true},
		{
			"back in one domain, forward in another", gtids(event.MariaDB, "0-2-57,1-2-3"), gtids(event.MariaDB, "0-2-1,1-2-4"),
			true,
		},
		{"a new domain", gtids(event.MariaDB, "0-2-57"), gtids(event.MariaDB, "0-2-57,1-2-1"), true},
		{"back to the beginning", gtids(event.MySQL, uuid+":1-57"), gtids(event.MySQL, ""), false},
		{"a hole is filled", gtids(event.MySQL, uuid+":1-5:7-57"), gtids(event.MySQL, uuid+":1-57"), true},
		{"from file to gtids", place("a", "binlog.000112", 4096), gtids(event.MySQL, uuid+":1-57"), true},
		{"back in the file", place("a", "binlog.000112", 4096), place("a", "binlog.000112", 4), false},
		{"forward in the file", place("a", "binlog.000112", 4096), place("a", "binlog.000112", 5000), true},
		{"an earlier file", place("a", "binlog.1000000", 4), place("a", "binlog.999999", 5000), false},
		{"a later file", place("a", "binlog.999999", 5000), place("a", "binlog.1000000", 4), true},
		{"a file of another server", place("a", "binlog.000112", 4096), place("b", "binlog.000001", 4), true},
	} {
		if got := ahead(&c.from, &c.to); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
