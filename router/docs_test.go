package router

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/event"
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
					t.Errorf("$ %s\n%s\nwant\n%s\n%s", command, got, want, gocmp.Diff(want, got))
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
			Rebuild       *struct {
				From, As, Decimals, Rows string
				Query, Value             yaml.Node
				Columns                  []yaml.Node
				TTL, Jitter              string
				ExpireAt                 string `yaml:"expire_at"`
				Missing                  *struct{ Cache, TTL string }
			}
			Hash   *struct{ Key, Field, Value yaml.Node }
			Set    *struct{ Key, Member yaml.Node }
			ZSet   *struct{ Key, Member, Score yaml.Node }
			Expire *struct {
				Keys []yaml.Node
				In   string
			}
			Incr    yaml.Node
			Publish *struct{ Channel, Message yaml.Node }
			Stream  *struct {
				Key    yaml.Node
				MaxLen int64
			}
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
			s.SecondDelete = duration(t, m.SecondDelete)
		}
		if r := m.Rebuild; r != nil {
			form, err := event.ParseForm(cmp.Or(r.As, "json"))
			if err != nil {
				t.Fatal(err)
			}
			percent, _ := strconv.ParseFloat(strings.TrimSuffix(r.Jitter, "%"), 64)
			s.Rebuild = &Rebuild{
				Pos: s.Table.Pos, FromRow: r.From == "row", Query: place(r.Query), As: form, Value: place(r.Value), Columns: places(r.Columns),
				DecimalNumbers: r.Decimals == "number", Many: r.Rows == "many", ExpireAt: duration(t, r.ExpireAt), TTL: duration(t, r.TTL), Jitter: percent / 100,
			}
			if r.Missing != nil {
				s.Rebuild.Missing = &Missing{Cache: r.Missing.Cache, TTL: duration(t, r.Missing.TTL)}
			}
		}
		if h := m.Hash; h != nil {
			s.Hash = &Hash{Key: place(h.Key), Field: place(h.Field), Value: place(h.Value)}
		}
		if x := m.Set; x != nil {
			s.Set = &Set{Key: place(x.Key), Member: place(x.Member)}
		}
		if z := m.ZSet; z != nil {
			s.ZSet = &ZSet{Key: place(z.Key), Member: place(z.Member), Score: place(z.Score)}
		}
		if e := m.Expire; e != nil {
			s.Expire = &Expire{Keys: places(e.Keys), In: duration(t, e.In)}
		}
		s.Incr = place(m.Incr)
		if p := m.Publish; p != nil {
			s.Publish = &Publish{Channel: place(p.Channel), Message: place(p.Message)}
		}
		if x := m.Stream; x != nil {
			s.Stream = &Stream{Key: place(x.Key), MaxLen: x.MaxLen}
		}
		specs = append(specs, s)
	}
	return specs
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
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
