package keyspace

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mustNew returns the keyspace of mappings over tables, whose keys begin with a prefix.
func mustNew(t testing.TB, prefix string, tables []*event.Table, specs ...spectest.Mapping) *Keyspace {
	t.Helper()
	r, err := router.New(spectest.Specs(specs...), router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(r.Mappings(), tables, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// makers returns the templates that can have made a key.
func makers(k *Keyspace, key string) []string {
	all := []string{}
	k.Match(key, func(t *Target) {
		all = append(all, fmt.Sprintf("%d %s", t.Mapping.Ordinal, t.Action.Key.Text.Value))
	})
	return all
}

func matches(k *Keyspace, key string) bool { return len(makers(k, key)) > 0 }

// column is a column of a type.
func columnOf(name, typ string, class event.Class) event.Column {
	return event.Column{Name: name, Type: typ, Class: class, Collation: "utf8mb4_0900_bin"}
}

func unsigned(c event.Column) event.Column {
	c.Unsigned = true
	return c
}

// product has a column of most types.
func product() *event.Table {
	return &event.Table{Schema: "shop", Name: "product", Columns: []event.Column{
		unsigned(columnOf("id", "bigint unsigned", event.ClassInt)),
		columnOf("n", "int", event.ClassInt),
		columnOf("tiny", "tinyint", event.ClassInt),
		unsigned(columnOf("small", "smallint(5) unsigned", event.ClassInt)),
		unsigned(columnOf("tax", "decimal(4,1) unsigned", event.ClassDecimal)),
		unsigned(columnOf("batch", "int(5) unsigned zerofill", event.ClassInt)),
		columnOf("sku", "varchar(64)", event.ClassText),
		columnOf("name", "varchar(64)", event.ClassText),
		columnOf("price", "decimal(10,2)", event.ClassDecimal),
		columnOf("score", "double", event.ClassFloat),
		columnOf("day", "date", event.ClassTemporal),
		columnOf("at", "datetime(3)", event.ClassTemporal),
		columnOf("took", "time", event.ClassTemporal),
		columnOf("born", "year", event.ClassTemporal),
		columnOf("uuid", "uuid", event.ClassUUID),
		columnOf("four", "inet4", event.ClassInet),
		columnOf("six", "inet6", event.ClassInet),
		columnOf("status", "enum('live','it''s','out of stock')", event.ClassEnum),
		columnOf("thumb", "varbinary(16)", event.ClassBinary),
		columnOf("extra", "json", event.ClassJSON),
	}}
}
