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

// With PARTIAL_JSON the text of a JSON column that was changed in part is not known.
func TestCheckWarnsOfJSONColumnsThatRowImagesHaveInPart(t *testing.T) {
	source := testbed.MySQL(t)
	source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.item (id INT PRIMARY KEY, about JSON)",
		"CREATE TABLE shop.other (id INT PRIMARY KEY, about JSON)")
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source.Addr+`"], user: root}
redis: {addresses: ["127.0.0.1:1"]}
mappings:
  - {table: shop.item, keys: ["item:{id}"], rebuild: {from: row}}
  - {table: shop.other, keys: ["other:{id}"]}
`), CheckMappings)
	testbed.Must(t, err)
	warned := func() (all []string) {
		var r Report
		checkSource(t.Context(), c, &r)
		for _, f := range r.Findings {
			if f.Grade == Warn && strings.Contains(f.What, "JSON") {
				all = append(all, f.What+" -> "+f.Fix)
			}
		}
		return all
	}
	if got := warned(); len(got) > 0 {
		t.Errorf("of whole images: %s", got)
	}
	source.Exec(t, "SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
	if got := warned(); len(got) != 1 || !strings.HasPrefix(got[0], "shop.item: binlog_row_value_options is PARTIAL_JSON") ||
		!strings.Contains(got[0], "mappings need about: ") ||
		!strings.HasSuffix(got[0], " -> SET PERSIST binlog_row_value_options = '';") {
		t.Errorf("of partial ones: %s", got)
	}
}
