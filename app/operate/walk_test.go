package operate

import (
	"errors"
	"strings"
	"testing"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/config"
)

// With Kafka rows are routed by the reader's mappings, and queries are run by the invalidator that walks. Without the
// query it could only delete the keys.
func TestAWarmUpNeedsTheQueriesOfItsTable(t *testing.T) {
	parse := func(mappings string) *config.Config {
		t.Helper()
		c, err := config.Parse("f.yaml", []byte(`
source: {name: shop, addresses: ["127.0.0.1:1"], user: root}
redis: {addresses: ["127.0.0.1:1"]}
mappings:
`+mappings), CheckMappings)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const row, query = `
  - {table: shop.user, keys: ["user:{id}"]}
`, `
  - table: shop.product
    keys: ["product:{id}"]
    rebuild: {query: "SELECT name FROM shop.product WHERE id = {id}"}
`
	reader := parse(row + query)
	none := parse(row)
	none.Mappings = nil
	for name, x := range map[string]struct {
		own     *config.Config
		table   string
		refused bool
	}{
		"its own":                      {reader, "product", false},
		"no mappings":                  {none, "product", true},
		"no mappings, another table":   {none, "user", false},
		"other mappings":               {parse(row), "product", true},
		"its own, in another order":    {parse(query + row), "product", false},
		"another query for this table": {parse(strings.Replace(query, "name", "price", 1)), "product", true},
	} {
		err := Warms(x.own, reader.Mappings, &Walk{Schema: "shop", Name: x.table})
		var elsewhere admin.NotHere
		said := errors.As(err, &elsewhere) && strings.Contains(err.Error(), "write mappings")
		if (err != nil) != x.refused || said != x.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
