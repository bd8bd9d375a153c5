package operate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/proof/testbed"
)

// startOf returns the findings about a start, each in a line, of a configuration with more keys.
func startOf(t *testing.T, address, dir, start, more string) string {
	t.Helper()
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+address+`"], user: root, start: "`+start+`"}
redis: {addresses: ["127.0.0.1:1"]}
eventlog: {dir: "`+dir+`"}
`+more+`
mappings: [{table: shop.product, keys: ["product:{id}"]}]
`), CheckMappings)
	testbed.Must(t, err)
	var text []string
	for _, f := range Check(t.Context(), c).Findings {
		for _, about := range []string{"eventlog.dir", "source.start", "checkpoint", "position lost"} {
			if strings.Contains(f.What, about) {
				text = append(text, string(f.Grade)+" "+f.What+"\n"+f.Fix)
				break
			}
		}
	}
	return strings.Join(text, "\n")
}

func TestCheckTriesWhereFreshetWouldBegin(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) *testbed.Server{
		"MySQL": testbed.MySQL, "MariaDB": testbed.MariaDB, "MySQL without GTIDs": testbed.MySQL,
	} {
		t.Run(name, func(t *testing.T) {
			var flags []string
			if strings.HasSuffix(name, "without GTIDs") {
				flags = []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}
			}
			source := start(t, flags...)
			source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.product (id INT PRIMARY KEY)")
			old := source.GTIDs(t)
			file, _ := source.BinlogPosition(t)
			source.Exec(t, "INSERT INTO shop.product VALUES (1)")
			dir := filepath.Join(t.TempDir(), "state")
			has := func(start, more string, want ...string) {
				t.Helper()
				got := startOf(t, source.Addr, dir, start, more)
				for _, w := range want {
					if !strings.Contains(got, w) {
						t.Errorf("start %s: want %q in\n%s", start, w, got)
					}
				}
			}
			for _, start := range []string{"now", "earliest", file + ":4"} {
				has(start, "", "ok there is no checkpoint yet: freshet would begin at ", "ok eventlog.dir "+dir+" can be written")
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("check has made the directory")
			}
			source.PurgeBinlogs(t)
			has(file+":4", "", "fail there is no checkpoint yet, and the source has no source.start "+file+":4: ")
			if old != "" {
				has("gtid:"+old, "", "fail there is no checkpoint yet, and the source has no source.start gtid:"+old)
			}

			// A checkpoint is what counts once there is one.
			store, err := embedded.Open(dir, embedded.Options{})
			testbed.Must(t, err)
			has("now", "", "ok eventlog.dir "+dir+" is in use by a freshet that runs")
			flavor := event.Flavor(source.Flavor)
			p := event.Position{Flavor: flavor, Server: "another", Epoch: 1, File: file, Pos: 4}
			if old != "" {
				p.GTIDs, err = event.ParseGTIDSet(flavor, old)
				testbed.Must(t, err)
			}
			testbed.Must(t, store.Checkpoint().Set(p))
			testbed.Must(t, store.Close())
			has("now", "", "fail position lost: ", "or set on_gap to invalidate")
			has("now", "on_gap: invalidate", "warn position lost: ", "forget all mapped keys")
			if old == "" {
				return
			}
			p.GTIDs, err = event.ParseGTIDSet(flavor, source.GTIDs(t))
			testbed.Must(t, err)
			store, err = embedded.Open(dir, embedded.Options{})
			testbed.Must(t, err)
			testbed.Must(t, store.Checkpoint().Set(p))
			testbed.Must(t, store.Close())
			has("now", "", "ok the source has what follows the checkpoint ")
		})
	}
}

func TestCheckTriesTheDirectory(t *testing.T) {
	at := func(dir string) string { return startOf(t, "127.0.0.1:1", dir, "now", "") }
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testbed.Must(t, os.WriteFile(file, nil, 0o600))
	for _, d := range []string{file, filepath.Join(file, "below")} {
		if got := at(d); !strings.HasPrefix(got, "fail eventlog.dir "+d) {
			t.Errorf("a file is no directory: %s", got)
		}
	}
	if got := at(dir); !strings.HasPrefix(got, "ok eventlog.dir "+dir+" can be written") {
		t.Error(got)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("check left something in the directory: %v, %v", all, err)
	}
	testbed.Must(t, os.WriteFile(filepath.Join(dir, embedded.FileName), []byte("no store"), 0o600))
	if got := at(dir); !strings.HasPrefix(got, "fail eventlog.dir "+dir) || !strings.Contains(got, "damaged") {
		t.Errorf("a damaged store: %s", got)
	}
	if os.Getuid() == 0 {
		return // may write everywhere
	}
	closed := filepath.Join(dir, "closed")
	testbed.Must(t, os.Mkdir(closed, 0o500))
	for _, d := range []string{closed, filepath.Join(closed, "a", "b")} {
		if got := at(d); !strings.HasPrefix(got, "fail eventlog.dir "+d+": freshet could not keep its state there: ") {
			t.Error(got)
		}
	}
}
