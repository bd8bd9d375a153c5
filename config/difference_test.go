package config

import (
	"fmt"
	"strings"
	"testing"
)

const before = `source: {addresses: ["127.0.0.1:3306"], user: freshet}
redis: {addresses: ["127.0.0.1:6379"]}
mappings:
  - table: shop.product
    columns: [name, price]
    keys: ["product:{id}", "category:{category_id}"]
  - table: shop.user
    keys: ["user:{id}"]
    rebuild: {from: row, as: json, columns: [id, name]}
  - table: shop.visit
    hash: {key: "visits", field: "{id}", value: "{n}"}
    set: {key: "visitors:{day}", member: "{user_id}"}
    zset: {key: "top", member: "{id}", score: "{n}"}
    expire: {keys: ["day:{day}", "week:{week}"], in: 1m}
    incr: "generation:{day}"
  - table: shop.visit
    events: [delete]
    keys: ["visit:{id}"]
  - table: shop.visit
    when: row.n > 0
    keys: ["visit:{id}"]
`

func TestMappingsDifferByTemplate(t *testing.T) {
	for name, c := range map[string]struct{ from, to, changed, gone string }{
		"nothing":             {"{n}", "{n}", "[]", "map[]"},
		"a new template":      {`["product:{id}", `, `["product:{id}", "p:{id}", `, "[p:{id}]", "map[]"},
		"a template less":     {`["product:{id}", `, `[`, "[]", "map[shop.product:[product:{id}]]"},
		"another template":    {"user:{id}", "u:{id}", "[u:{id}]", "map[shop.user:[user:{id}]]"},
		"another table":       {"shop.user", "shop.people", "[user:{id}]", "map[shop.user:[user:{id}]]"},
		"other columns":       {"[name, price]", "[name]", "[category:{category_id} product:{id}]", "map[]"},
		"a predicate":         {"columns: [name", "when: row.a\n    columns: [name", "[category:{category_id} product:{id}]", "map[]"},
		"another document":    {"columns: [id, name]", "columns: [id]", "[user:{id}]", "map[]"},
		"no rebuild":          {"    rebuild: {from: row, as: json, columns: [id, name]}\n", "", "[user:{id}]", "map[]"},
		"a second delete":     {"    columns: [name, price]", "    columns: [name, price]\n    second_delete: 1m", "[]", "map[]"},
		"order":               {"[name, price]", "[price, name]", "[]", "map[]"},
		"a field":             {`field: "{id}"`, `field: "{user_id}"`, "[visits]", "map[]"},
		"a member":            {`member: "{user_id}"`, `member: "{id}"`, "[visitors:{day}]", "map[]"},
		"a score":             {`score: "{n}"`, `score: "{id}"`, "[top]", "map[]"},
		"one key to expire":   {`"week:{week}"`, `"w:{week}"`, "[w:{week}]", "map[shop.visit:[week:{week}]]"},
		"a counter":           {"generation:{day}", "generation", "[generation]", "map[shop.visit:[generation:{day}]]"},
		"one of two mappings": {"  - table: shop.visit\n    when: row.n > 0\n    keys: [\"visit:{id}\"]\n", "", "[visit:{id}]", "map[]"},
		"both of two": {
			"  - table: shop.visit\n    events: [delete]\n    keys: [\"visit:{id}\"]\n" +
				"  - table: shop.visit\n    when: row.n > 0\n    keys: [\"visit:{id}\"]\n", "", "[]", "map[shop.visit:[visit:{id}]]",
		},
		"a mapping is split": {
			`"product:{id}", "`, "\"product:{id}\"]\n  - table: shop.product\n    columns: [price, name]\n    keys: [\"", "[]", "map[]",
		},
	} {
		after := strings.Replace(before, c.from, c.to, 1)
		d := DifferenceOf(mustParse(t, before).Mappings, mustParse(t, after).Mappings)
		if got := fmt.Sprint(d.Changed, d.Gone); got != c.changed+" "+c.gone {
			t.Errorf("%s: %s, want %s %s", name, got, c.changed, c.gone)
		}
	}
	all := DifferenceOf(nil, mustParse(t, before).Mappings)
	if got := fmt.Sprint(all.Changed); got != "[category:{category_id} day:{day} generation:{day} product:{id} top user:{id} "+
		"visit:{id} visitors:{day} visits week:{week}]" {
		t.Error(got)
	}
}
