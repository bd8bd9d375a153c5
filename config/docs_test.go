package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestTheExampleLoadsWithTheDefaults(t *testing.T) {
	c, err := Load("../deploy/freshet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Options{
		cmpopts.IgnoreFields(Config{}, "Mappings", "File"), cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty(),
	}
	if d := cmp.Diff(mustParse(t, minimal), c, same); d != "" {
		t.Errorf("the example shows other values than the defaults (-default +example):\n%s", d)
	}
	text, err := os.ReadFile("../deploy/freshet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	table := unbuilt()
	for _, k := range keys() {
		_, given := c.origins[k.path]
		_, name := split(k.path)
		isUnbuilt := slices.Contains(table.settings, k.path) ||
			// Keys of a Redis mode that is not built.
			slices.Contains(table.settings, "redis.mode") && (strings.Contains(name, "sentinel") || name == "master_name")
		switch {
		case given && isUnbuilt:
			t.Errorf("%s is in the example and not built", k.path)
		case !given && !isUnbuilt && !strings.Contains(string(text), name):
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
	table := unbuilt()
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		got = append(got, strings.Join(r[1:5], " | "))
		refused := slices.Contains(table.settings, r[1])
		if refused != strings.Contains(r[5], "not supported yet") && !slices.Contains(table.single, r[1]) {
			t.Errorf("%s: whether it is supported is said otherwise: %s", r[1], r[5])
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

func TestTheDocumentationHasEveryKeyOfAMapping(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range mappingKeys() {
		line := regexp.MustCompile(fmt.Sprintf("(?m)^\\| (`[a-z]+`, )*`%s`[,| ].*$", name)).FindString(string(text))
		refused := slices.Contains(unbuilt().actions, name) || slices.Contains(unbuilt().mappingSettings, name)
		if line == "" || refused != strings.Contains(line, "not supported yet") {
			t.Errorf("%s of a mapping: the line is %q", name, line)
		}
	}
}

// What the documentation shows as YAML is accepted, and the problems that it shows are those that there are.
func TestTheExamplesOfTheDocumentationAreTrue(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(yaml|text)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 || blocks[0][1] != "yaml" || blocks[1][1] != "yaml" || blocks[2][1] != "text" {
		t.Fatalf("it has %d examples: teach this test", len(blocks))
	}
	mustParse(t, blocks[0][2])
	_, err = Parse("freshet.yaml", []byte(blocks[1][2]))
	if err == nil {
		t.Fatal("the wrong example loads")
	}
	if d := cmp.Diff(blocks[2][2], err.Error()+"\n"); d != "" {
		t.Errorf("the problems of the wrong example (-shown +true):\n%s", d)
	}
}
