package config

import (
	"strings"
	"testing"
)

const hashed = `source: {addresses: ["127.0.0.1:3306"], user: freshet}
redis: {addresses: ["127.0.0.1:6379"]}
mappings:
  - table: shop.product
    columns: [name, price]
    when: "row.a == 1"
    keys: ["product:{id}", "category:{category_id}"]
  - table: shop.user
    keys: ["user:{id}"]
    second_delete: 1s
`

// The hash is in checkpoints: a new one for the same mappings would be said aloud at every upgrade.
func TestTheHashOfMappingsIsTheSameInEveryVersion(t *testing.T) {
	if got, want := mustParse(t, hashed).MappingsHash(), "ba273e1cce646d36fcc906cde43a08f1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTheHashIsThatOfTheMeaning(t *testing.T) {
	before := mustParse(t, hashed).MappingsHash()
	for name, edit := range map[string][2]string{
		"quotes":                 {`"user:{id}"`, `'user:{id}'`},
		"a comment":              {`table: shop.user`, `table: shop.user # people`},
		"layout":                 {"keys: [\"user:{id}\"]", "keys:\n      - \"user:{id}\""},
		"order of keys of YAML":  {"    keys: [\"user:{id}\"]\n    second_delete: 1s", "    second_delete: 1s\n    keys: [\"user:{id}\"]"},
		"order of columns":       {"[name, price]", "[price, name]"},
		"order of templates":     {`["product:{id}", "category:{category_id}"]`, `["category:{category_id}", "product:{id}"]`},
		"defaults written out":   {"table: shop.user", "table: shop.user\n    events: [update, delete, insert]\n    rate_limit: none"},
		"the same second delete": {"table: shop.product", "table: shop.product\n    second_delete: 2000ms"},
		"another server":         {"127.0.0.1:3306", "10.0.0.1:3306"},
	} {
		if got := mustParse(t, strings.Replace(hashed, edit[0], edit[1], 1)).MappingsHash(); got != before {
			t.Errorf("%s changes the hash", name)
		}
	}
	head, mappings, _ := strings.Cut(hashed, "  - table: shop.product")
	product, user, _ := strings.Cut(mappings, "  - table: shop.user")
	swapped := head + "  - table: shop.user" + user + "  - table: shop.product" + product
	if mustParse(t, swapped).MappingsHash() != before {
		t.Error("the order of mappings changes the hash")
	}
	seen := map[string]string{before: "nothing"}
	for name, edit := range map[string][2]string{
		"table":                    {"table: shop.user", "table: shop.users"},
		"events":                   {"table: shop.user", "table: shop.user\n    events: [insert, delete]"},
		"columns":                  {"[name, price]", "[name]"},
		"columns away":             {"    columns: [name, price]\n", ""},
		"columns joined":           {"[name, price]", `["name,price"]`},
		"when":                     {"row.a == 1", "row.a == 2"},
		"when away":                {"    when: \"row.a == 1\"\n", ""},
		"template":                 {"user:{id}", "user:{ID}"},
		"template away":            {`, "category:{category_id}"`, ""},
		"template moved":           {"[\"user:{id}\"]", "[\"user:{id}\", \"category:{category_id}\"]"},
		"second delete":            {"second_delete: 1s", "second_delete: none"},
		"second delete of all":     {"redis:", "invalidator: {second_delete: 3s}\nredis:"},
		"mapping away":             {"  - table: shop.user\n    keys: [\"user:{id}\"]\n    second_delete: 1s\n", ""},
		"mapping more":             {"mappings:\n", "mappings:\n  - {table: a.b, keys: [x]}\n"},
		"templates in two mapping": {"  - table: shop.user\n", "  - {table: shop.user, keys: [x]}\n  - table: shop.user\n"},
	} {
		edited := strings.Replace(hashed, edit[0], edit[1], 1)
		if edited == hashed {
			t.Fatalf("%s: nothing edited", name)
		}
		got := mustParse(t, edited).MappingsHash()
		if other, twice := seen[got]; twice {
			t.Errorf("%s gives the hash of %s", name, other)
		}
		seen[got] = name
	}
}
