package router

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// The page about mappings is what users go by, so all of its examples are run: a yaml block is the configuration of
// the console blocks that follow it.
func TestThePageAboutMappingsIsTrue(t *testing.T) {
	page, err := os.ReadFile("../docs/mappings.md")
	if err != nil {
		t.Fatal(err)
	}
	var specs []Mapping
	configurations, commands := 0, 0
	for i, block := range strings.Split(string(page), "```") {
		switch kind, body, _ := strings.Cut(block, "\n"); {
		case i%2 == 0 || kind == "":
		case kind == "yaml":
			specs = readMappings(t, body)
			configurations++
		case kind == "console":
			for _, c := range strings.Split("\n"+body, "\n$ ")[1:] {
				command, want, _ := strings.Cut(c, "\n")
				if got := runCommand(t, specs, command); strings.TrimSpace(got) != strings.TrimSpace(want) {
					t.Errorf("$ %s\n%s\nwant\n%s\n%s", command, got, want, cmp.Diff(want, got))
				}
				commands++
			}
		default:
			t.Errorf("a block of %q is not run", kind)
		}
	}
	if configurations < 10 || commands < 15 {
		t.Errorf("only %d configurations and %d commands were found", configurations, commands)
	}
}

// readMappings reads the mappings as the configuration does: with the places of their texts.
func readMappings(t *testing.T, body string) []Mapping {
	t.Helper()
	var doc struct {
		Mappings []struct {
			Table, When   yaml.Node
			Events        []string
			Columns, Keys []yaml.Node
			SecondDelete  string `yaml:"second_delete"`
		}
	}
	if err := yaml.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	place := func(n yaml.Node) Text {
		column := n.Column
		if n.Style == yaml.DoubleQuotedStyle {
			column++
		}
		return Text{Value: n.Value, Pos: Pos{"freshet.yaml", n.Line, column}}
	}
	places := func(ns []yaml.Node) (out []Text) {
		for _, n := range ns {
			out = append(out, place(n))
		}
		return out
	}
	var specs []Mapping
	for _, m := range doc.Mappings {
		s := Mapping{Table: place(m.Table), When: place(m.When), Columns: places(m.Columns), Keys: places(m.Keys), SecondDelete: 2 * time.Second}
		for _, e := range m.Events {
			s.Events.Insert = s.Events.Insert || e == "insert"
			s.Events.Update = s.Events.Update || e == "update"
			s.Events.Delete = s.Events.Delete || e == "delete"
		}
		switch m.SecondDelete {
		case "":
		case "none":
			s.SecondDelete = 0
		default:
			d, err := time.ParseDuration(m.SecondDelete)
			if err != nil {
				t.Fatal(err)
			}
			s.SecondDelete = d
		}
		specs = append(specs, s)
	}
	return specs
}

// runCommand does what the command line does.
func runCommand(t *testing.T, specs []Mapping, command string) string {
	t.Helper()
	var args []string
	for i, quoted := range strings.Split(command, "'") {
		if i%2 == 1 {
			args = append(args, quoted)
		} else {
			args = append(args, strings.Fields(quoted)...)
		}
	}
	r, err := New(specs, Options{})
	switch {
	case len(args) == 2 && args[1] == "validate":
		if err == nil {
			return "no problems"
		}
		return err.Error()
	case err != nil:
		return err.Error()
	}
	s := Sample{Table: args[2], Row: []byte(args[3])}
	if len(args) == 6 && args[4] == "--old" {
		s.Old = []byte(args[5])
	}
	x, err := r.Explain(s)
	if err != nil {
		return err.Error()
	}
	return x.String()
}
