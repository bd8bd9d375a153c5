package config

import (
	"fmt"
	"strings"
	"testing"
)

// A version and a lock are kept in the slot of their key, which is known from the key alone: braces of the prefix must
// not change what a template's braces mean.
func TestAKeyPrefixHasOneWholeHashTagOrNoBraces(t *testing.T) {
	for prefix, want := range map[string]bool{
		"": true, "app:": true, "{app}": true, "{app}:": true, "a:{app}:b:": true, "{größe}": true,
		"{": false, "}": false, "{app": false, "app}": false, "{}": false, "{}:": false, "a{}b{c}": false, "{a}{b}": false,
		"{{a}}": false,
		"}{":    false, "{a}}": false, "}{a}": false, "{a{b}": false,
	} {
		_, err := Parse("freshet.yaml",
			[]byte(strings.Replace(minimal, `["127.0.0.1:6379"]`, fmt.Sprintf("[\"127.0.0.1:6379\"]\n  key_prefix: %q", prefix),
				1)))
		told := ""
		if err != nil {
			told = err.Error()
		}
		refusal := fmt.Sprintf("freshet.yaml:6:15: redis.key_prefix: %q has braces that are not one hash tag: write one "+
			"with something in it, such as {shop}:, or no braces", prefix)
		if want && told != "" || !want && told != refusal {
			t.Errorf("%q: %s", prefix, told)
		}
	}
}

func TestANegativeEntryIsOfBoundedSize(t *testing.T) {
	text := minimal + "    rebuild: {from: row, missing: {ttl: 1s, cache: " + strings.Repeat("x", maxCache) + "%s}}\n"
	mustParse(t, fmt.Sprintf(text, ""))
	_, err := Parse("freshet.yaml", fmt.Appendf(nil, text, "x"))
	if err == nil || err.Error() != "freshet.yaml:9:52: rebuild.missing.cache is too long: write at most 64KiB" {
		t.Error(err)
	}
}

// With problems, a check is given the actions that are whole, and no others.
func TestAChecksActionsAreWhole(t *testing.T) {
	c, err := parseAnyway(t, minimal+`  - {table: a.a, keys: [k], rebuild: {from: rwo}, hash: {key: h}, set: {member: m}, zset: {key: z}, expire: {keys: [e]}, publish: {channel: c}, stream: {maxlen: 5}}
  - {table: a.b, rebuild: {from: row}, publish: {channel: c, message: m}, stream: {key: s}, incr: gen}
  - {table: a.c, rebuild: {from: row}}
  - {table: a.d, keys: [k], rebuild: {from: row, missing: {cache: x}, value: v}}
`)
	if err == nil {
		t.Fatal("it loads")
	}
	if len(c.Mappings) != 4 {
		t.Fatalf("%d mappings", len(c.Mappings))
	}
	a, b, d := c.Mappings[1], c.Mappings[2], c.Mappings[3]
	if a.Rebuild != nil || a.Hash != nil || a.Set != nil || a.ZSet != nil || a.Expire != nil || a.Publish != nil ||
		a.Stream != nil {
		t.Errorf("%+v", a)
	}
	if b.Rebuild != nil || b.Publish != nil || b.Stream != nil || b.Incr.Value != "gen" {
		t.Errorf("%+v", b)
	}
	if d.Table.Value != "a.d" || d.Rebuild == nil || d.Rebuild.Missing != nil {
		t.Errorf("%+v", d)
	}
}
