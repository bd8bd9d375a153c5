package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// sameSecret compares secrets by their text.
var sameSecret = cmp.Comparer(func(a, b Secret) bool { return a.Reveal() == b.Reveal() })

func TestTheExampleLoadsWithTheDefaults(t *testing.T) {
	c, err := Load("../deploy/freshet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Options{
		cmpopts.IgnoreFields(Config{}, "Mappings", "File"), cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty(),
		sameSecret,
	}
	if d := cmp.Diff(mustParse(t, minimal), c, same); d != "" {
		t.Errorf("the example shows other values than the defaults (-default +example):\n%s", d)
	}
	text, err := os.ReadFile("../deploy/freshet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys() {
		_, given := c.origins[k.path]
		_, name := split(k.path)
		if !given && !strings.Contains(string(text), name) {
			t.Errorf("%s is not in the example", k.path)
		}
	}
}

// row is a line of the table of keys: key, type, default, variable, meaning.
var row = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| (.*?) \\| (.*?) \\| (.*?) \\| (.*) \\|$")

func TestTheDocumentationHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		got = append(got, strings.Join(r[1:5], " | "))
		if strings.Contains(r[5], "not supported yet") {
			t.Errorf("%s is supported: %s", r[1], r[5])
		}
	}
	for _, k := range keys() {
		want = append(want, strings.Join([]string{k.path, k.name, documented(k), "`" + k.env() + "`"}, " | "))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the tables of docs/configuration.md (-want +got):\n%s", d)
	}
}

// documented is a default as the documentation shows it.
func documented(k key) string {
	switch {
	case k.required:
		return "required"
	case k.list:
		return "`[" + strings.Join(k.def, ", ") + "]`"
	case k.def[0] == "":
		return "empty"
	}
	return "`" + k.def[0] + "`"
}

// mappingRow is a line of the tables of a mapping's keys: key, type, default, meaning.
var mappingRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^|]*) \\| ([^|]*) \\| (.*) \\|$")

// documentedUnder returns what is documented under a heading, and the examples in it.
func documentedUnder(t *testing.T, heading string) (text, examples string) {
	t.Helper()
	data, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(data), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no %q", heading)
	}
	text = regexp.MustCompile(`(?m)^##`).Split(text, 2)[0]
	for _, block := range yamlBlock.FindAllStringSubmatch(text, -1) {
		examples += block[1]
	}
	return text, examples
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Every key of a mapping and of its actions has a row with its type and default, and is in an example.
func TestTheDocumentationHasEveryKeyOfAMapping(t *testing.T) {
	types := map[string]string{
		"mappings.second_delete": secondDelete().name, "mappings.rate_limit": rateLimit().name,
		"mappings.scope":  "keys, rows, or expression by column",
		"rebuild.timeout": rebuildTimeout().name, "rebuild.rows": rowsKinds().name, "rebuild.as": forms().name,
		"rebuild.decimals": decimalsKinds().name, "rebuild.expire_at": orWord(timeToLive(), "none").name,
		"rebuild.ttl": orWord(timeToLive(), "none").name, "rebuild.jitter": percentages().name,
		"rebuild.missing.ttl": timeToLive().name, "expire.in": timeToLive().name, "stream.maxlen": maxLen().name,
	}
	defaults := map[string]string{
		"mappings.rate_limit": rateLimit().format(0), "mappings.scope": "keys",
		"rebuild.timeout": shortDuration(queryTimeout), "rebuild.server": spec.OnSource, "rebuild.rows": string(spec.RowsOne),
		"rebuild.as":       event.FormJSON.String(),
		"rebuild.decimals": string(spec.DecimalsString), "rebuild.jitter": percentages().format(0),
		"stream.maxlen": maxLen().format(streamLength),
	}
	for action, names := range map[string][]string{
		"mappings": mappingKeys(), "rebuild": append(rebuildKeys(), "missing.cache", "missing.ttl"), "hash": hashKeys(),
		"set":  setKeys(),
		"zset": zsetKeys(), "expire": expireKeys(), "publish": publishKeys(), "stream": streamKeys(),
	} {
		heading := "### " + action
		if action == "mappings" {
			heading = "## " + action
		}
		text, examples := documentedUnder(t, heading)
		rows := map[string][]string{}
		for _, r := range mappingRow.FindAllStringSubmatch(text, -1) {
			rows[r[1]] = r[2:]
		}
		for _, name := range names {
			path := action + "." + name
			r, ok := rows[name]
			delete(rows, name)
			_, last := split(path)
			switch {
			case !ok:
				t.Errorf("%s has no row", path)
			case types[path] != "" && r[0] != types[path]:
				t.Errorf("%s: the type is %q, want %q", path, r[0], types[path])
			case defaults[path] != "" && r[1] != "`"+defaults[path]+"`":
				t.Errorf("%s: the default is %s, want %s", path, r[1], defaults[path])
			case !slices.Contains(actions(), name) && !regexp.MustCompile(`\b`+last+`:`).MatchString(examples):
				t.Errorf("%s is in no example", path)
			}
		}
		for name := range rows {
			t.Errorf("%s.%s has a row and is no key", action, name)
		}
	}
}

// What the documentation shows as YAML is accepted, and the problems that it shows are those that there are.
func TestTheExamplesOfTheDocumentationAreTrue(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(minimal, "mappings:\n")
	blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
	problems := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 3 || len(problems) != 1 {
		t.Fatalf("it has %d examples and %d lists of problems: teach this test", len(blocks), len(problems))
	}
	mustParse(t, blocks[0][1])
	_, err = Parse("freshet.yaml", []byte(blocks[1][1]))
	if err == nil {
		t.Fatal("the wrong example loads")
	}
	if d := cmp.Diff(problems[0][1], err.Error()+"\n"); d != "" {
		t.Errorf("the problems of the wrong example (-shown +true):\n%s", d)
	}
	for _, block := range blocks[2:] {
		mustParse(t, head+block[1])
	}
}
