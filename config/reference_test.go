package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

// testdata/reference.yaml is the whole surface that users are told of, also what is not built yet.
func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheReferenceIsRefusedForWhatIsNotBuiltAndNothingElse(t *testing.T) {
	_, err := Parse("reference.yaml", []byte(reference(t)))
	want := `reference.yaml:93:5: the action rebuild is not supported yet: remove it; keys: deletes are
reference.yaml:97:5: the action rebuild is not supported yet: remove it; keys: deletes are
reference.yaml:99:5: the action hash is not supported yet: remove it; keys: deletes are
reference.yaml:101:5: the action set is not supported yet: remove it; keys: deletes are
reference.yaml:103:5: the action zset is not supported yet: remove it; keys: deletes are
reference.yaml:105:5: the action incr is not supported yet: remove it; keys: deletes are
reference.yaml:107:5: the action expire is not supported yet: remove it; keys: deletes are
reference.yaml:111:5: the action publish is not supported yet: remove it; keys: deletes are
reference.yaml:112:5: the action stream is not supported yet: remove it; keys: deletes are`
	if err == nil {
		t.Fatal("it loads")
	}
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Error(d)
	}
}

// supported returns the reference without what is not built yet.
func supported(t *testing.T) string {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(reference(t)), &doc); err != nil {
		t.Fatal(err)
	}
	top := doc.Content[0]
	mappings := child(top, "mappings")
	for _, m := range mappings.Content {
		without(m, unbuilt().actions...)
	}
	mappings.Content = slices.DeleteFunc(mappings.Content, func(m *yaml.Node) bool { return child(m, "keys") == nil })
	text, err := yaml.Marshal(&doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func without(n *yaml.Node, names ...string) {
	for i := 0; i < len(n.Content); {
		if slices.Contains(names, n.Content[i].Value) {
			n.Content = slices.Delete(n.Content, i, i+2)
		} else {
			i += 2
		}
	}
}

func TestTheReferenceShowsTheDefaults(t *testing.T) {
	c := mustParse(t, supported(t))
	same := cmp.Options{cmpopts.IgnoreFields(Config{}, "Mappings"), cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty()}
	if d := cmp.Diff(mustParse(t, minimal), c, same); d != "" {
		t.Errorf("what the reference shows is not the default (-default +reference):\n%s", d)
	}
	var tables []string
	for _, m := range c.Mappings {
		tables = append(tables, m.Table.Value)
	}
	if want := []string{"shop.product", "shop.order_{00..63}", "shop.user", "shop.review", "shop.price"}; !slices.Equal(tables, want) {
		t.Errorf("tables %q, want %q", tables, want)
	}
}

func TestTheReferenceShowsTheDefaultsOfKafka(t *testing.T) {
	text := strings.Replace(reference(t), "kind: embedded ", "kind: kafka ", 1)
	text = strings.Replace(text, "brokers: [] ", `brokers: ["kafka:9092"] `, 1)
	c, err := parseAnyway(t, text)
	if strings.Contains(err.Error(), "eventlog") {
		t.Error(err)
	}
	want := mustParse(t, minimal).EventLog.Kafka
	want.Brokers = []string{"kafka:9092"}
	if d := cmp.Diff(want, c.EventLog.Kafka); d != "" {
		t.Error(d)
	}
	for _, k := range keys() {
		if _, given := c.origins[k.path]; given && !k.required && k.path != "eventlog.kind" && k.path != "eventlog.kafka.brokers" && !slices.Equal(k.get(c), append([]string{}, k.def...)) {
			t.Errorf("%s: the reference shows %q, the default is %q", k.path, k.get(c), k.def)
		}
	}
}

func TestEveryKeyIsInTheReference(t *testing.T) {
	text := reference(t)
	c, err := parseAnyway(t, strings.Replace(text, "kind: embedded ", "kind: kafka ", 1))
	if err == nil {
		t.Fatal("it loads")
	}
	for _, k := range keys() {
		_, name := split(k.path)
		_, given := c.origins[k.path]
		// A few, those of files and the like, are in comments only.
		if !given && !regexp.MustCompile(`#.*\b`+name+`\b`).MatchString(text) && !strings.Contains(text, "; "+name) {
			t.Errorf("%s is in no line of the reference", k.path)
		}
	}
	for _, name := range mappingKeys() {
		if !regexp.MustCompile(`(?m)^  [- ] ` + name + `:`).MatchString(text) {
			t.Errorf("%s of a mapping is in no line of the reference", name)
		}
	}
}

func TestEveryLineOfTheTableOfWhatIsNotBuiltNamesAKey(t *testing.T) {
	paths := map[string]bool{}
	for _, k := range keys() {
		paths[k.path] = true
		section, _ := split(k.path)
		paths[section] = true
	}
	table := unbuilt()
	for _, p := range slices.Concat(table.settings, table.single) {
		if !paths[p] {
			t.Errorf("%s is no key", p)
		}
	}
	for _, name := range slices.Concat(table.actions, table.mappingSettings) {
		if !slices.Contains(mappingKeys(), name) {
			t.Errorf("%s is no key of a mapping", name)
		}
	}
}
