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
		"quotes":    {`"user:{id}"`, `'user:{id}'`},
		"a comment": {`table: shop.user`, `table: shop.user # people`},
		"layout":    {"keys: [\"user:{id}\"]", "keys:\n      - \"user:{id}\""},
		"order of keys of YAML": {
			"    keys: [\"user:{id}\"]\n    second_delete: 1s",
			"    second_delete: 1s\n    keys: [\"user:{id}\"]",
		},
		"order of columns": {"[name, price]", "[price, name]"},
		"order of templates": {
			`["product:{id}", "category:{category_id}"]`,
			`["category:{category_id}", "product:{id}"]`,
		},
		"defaults written out": {
			"table: shop.user",
			"table: shop.user\n    events: [update, delete, insert]\n    rate_limit: none\n    scope: keys",
		},
		"the same second delete": {"table: shop.product", "table: shop.product\n    second_delete: 2000ms"},
		"another server":         {"127.0.0.1:3306", "10.0.0.1:3306"},
		"a rate limit":           {"second_delete: 1s", "second_delete: 1s\n    rate_limit: 100"},
		"a scope":                {"second_delete: 1s", "second_delete: 1s\n    scope: {id: \"[0-9]+\"}"},
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

// acting has every action, each with all of its keys.
const acting = `source: {addresses: ["127.0.0.1:3306"], user: freshet}
redis: {addresses: ["127.0.0.1:6379"]}
mappings:
  - table: shop.user
    keys: ["user:{id}"]
    rebuild:
      from: row
      as: json
      columns: [id, "user_name as userName"]
      decimals: number
      expire_at: 5m
      ttl: 1h
      jitter: 10%
      missing: {cache: "-", ttl: 30s}
    hash: {key: "users", field: "{id}", value: "{name}"}
    set: {key: "names", member: "{name}"}
    zset: {key: "board", member: "{id}", score: "{points}"}
    incr: "users:gen"
    expire: {keys: ["a:{id}", "b:{id}"], in: 5s}
    publish: {channel: changed, message: "{id}"}
    stream: {key: changes, maxlen: 500}
  - table: shop.review
    keys: ["product:{product_id}:reviews"]
    rebuild: {query: "SELECT 1", server: source, timeout: 2s, rows: many}
  - table: shop.name
    keys: ["name:{id}"]
    rebuild: {from: row, as: string, value: "{name}"}
`

func TestTheHashOfActionsIsTheSameInEveryVersion(t *testing.T) {
	if got, want := mustParse(t, acting).MappingsHash(), "ce3e8c8b6881394fc8280a37423e6685"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEveryKeyOfAnActionChangesTheHash(t *testing.T) {
	seen := map[string]string{mustParse(t, acting).MappingsHash(): "nothing"}
	for _, edit := range [][2]string{
		{`as: json`, `as: hash`},
		{`"user_name as userName"]`, `"user_name as name"]`},
		{`[id, "user_name as userName"]`, `["user_name as userName", id]`},
		{`number`, `string`},
		{`expire_at: 5m`, `expire_at: 6m`},
		{`ttl: 1h`, `ttl: 2h`},
		{`jitter: 10%`, `jitter: 0.1%`},
		{`cache: "-"`, `cache: ""`},
		{`ttl: 30s`, `ttl: 31s`},
		{"      missing: {cache: \"-\", ttl: 30s}\n", ""},
		{`key: "users", field`, `key: "user", field`},
		{`field: "{id}"`, `field: "{ID}"`},
		{`value: "{name}"}`, `value: "{id}"}`},
		{`, value: "{name}"}`, `}`},
		{`key: "names"`, `key: "name"`},
		{`member: "{name}"`, `member: "{id}"`},
		{`key: "board"`, `key: "boards"`},
		{`member: "{id}", score`, `member: "{name}", score`},
		{`score: "{points}"`, `score: "{point}"`},
		{`, score: "{points}"`, ``},
		{`users:gen`, `user:gen`},
		{"    incr: \"users:gen\"\n", ""},
		{`"a:{id}", "b:{id}"`, `"a:{id}"`},
		{`in: 5s`, `in: 6s`},
		{`channel: changed`, `channel: change`},
		{`message: "{id}"`, `message: "{name}"`},
		{`key: changes`, `key: change`},
		{`maxlen: 500`, `maxlen: none`},
		{`SELECT 1`, `SELECT 2`},
		{`timeout: 2s`, `timeout: 3s`},
		{`rows: many`, `rows: one`},
		{`as: string, value: "{name}"`, `as: string, value: "{id}"`},
		{`rebuild: {from: row, as: string, value: "{name}"}`, `second_delete: 2s`},
		{`query: "SELECT 1", server: source, timeout: 2s, rows: many`, `from: row`},
	} {
		edited := strings.Replace(acting, edit[0], edit[1], 1)
		if edited == acting {
			t.Fatalf("%s: nothing edited", edit[0])
		}
		if strings.HasPrefix(edit[1], "as: hash") { // which has neither
			edited = strings.Replace(strings.Replace(edited, "      decimals: number\n", "", 1),
				"      missing: {cache: \"-\", ttl: 30s}\n", "", 1)
		}
		got := mustParse(t, edited).MappingsHash()
		if other, twice := seen[got]; twice {
			t.Errorf("%s → %s gives the hash of %s", edit[0], edit[1], other)
		}
		seen[got] = edit[0] + " → " + edit[1]
	}
}

func TestDefaultsOfActionsWrittenOutDoNotChangeTheHash(t *testing.T) {
	short := minimal + `  - table: shop.review
    keys: ["rating:{id}"]
    rebuild: {query: "SELECT 1"}
    stream: {key: s}
    expire: {keys: [a, b], in: 1m}
`
	long := minimal + `  - table: shop.review
    expire: {in: 60s, keys: [b, a]}
    keys: ["rating:{id}"]
    rebuild: {query: "SELECT 1", server: source, timeout: 5s, rows: one, as: json, decimals: string, expire_at: none, ttl: none}
    stream: {key: s, maxlen: 10000}
`
	if mustParse(t, short).MappingsHash() != mustParse(t, long).MappingsHash() {
		t.Error("the hash is another one")
	}
}
