package operate

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/router"
)

// Columns that an expression makes, and that mappings need, are named where the server leaves them out of row images.
func TestCheckWarnsOfComputedColumnsThatRowImagesLack(t *testing.T) {
	source := testbed.MariaDB(t)
	source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.item (id INT PRIMARY KEY, a INT, v INT AS (a*3) VIRTUAL, "+
		"s INT AS (a*5) STORED, unused INT AS (a*7) STORED, b TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "+
		"e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING")
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source.Addr+`"], user: root}
redis: {addresses: ["127.0.0.1:1"]}
mappings:
  - {table: shop.item, keys: ["item:{v}:{b}"], when: "row.s > 3"}
`), CheckMappings)
	if err != nil {
		t.Fatal(err)
	}
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := connect.Source(c)
	connect.Routed(&o, route)
	s, err := canal.Inspect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		info canal.SourceInfo
		want bool
	}{
		{canal.SourceInfo{Flavor: event.MariaDB, Version: "10.11.19-MariaDB-log", RowImage: "FULL"}, false},
		{canal.SourceInfo{Flavor: event.MariaDB, Version: "11.4.5-MariaDB", RowImage: "FULL"}, false},
		{canal.SourceInfo{Flavor: event.MariaDB, Version: "11.4.5-MariaDB", RowImage: "FULL_NODUP"}, true},
		{canal.SourceInfo{Flavor: event.MariaDB, Version: "11.8.9-MariaDB", RowImage: "FULL"}, true},
		{canal.SourceInfo{Flavor: event.MariaDB, Version: "12.0.1-MariaDB", RowImage: "MINIMAL"}, true},
		{canal.SourceInfo{Flavor: event.MySQL, Version: "12.0.1", RowImage: "FULL"}, false},
	} {
		var r Report
		checkComputed(&e.info, route, s.Tables, &r)
		if warned := len(r.Findings) == 1 && strings.Contains(r.Findings[0].What, "mappings need v, s:"); warned != e.want ||
			len(r.Findings) > 1 {
			t.Errorf("%s with %s: %+v", e.info.Version, e.info.RowImage, r.Findings)
		}
	}
}
