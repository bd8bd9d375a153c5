package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/freshet/freshet/config/spec"
)

// Whatever a file holds, loading it ends, with a whole configuration or with problems that each say something and
// stand in the file.
func FuzzParse(f *testing.F) {
	f.Add(minimal)
	f.Add(hashed)
	f.Add(acting)
	reference, err := os.ReadFile("testdata/reference.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(reference))
	files, err := filepath.Glob("testdata/problems/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(archive.Files[len(archive.Files)-2].Data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "_file") {
			return // it would read whatever the machine has by that name
		}
		c, err := Parse("freshet.yaml", []byte(text), func(c *Config) spec.Problems { everyText(t, c, text); return nil })
		if err == nil {
			again, err := Parse("freshet.yaml", []byte(c.String()))
			if err != nil || again.MappingsHash() != c.MappingsHash() {
				t.Fatalf("what is printed does not load as it was: %v\n%s", err, c)
			}
			return
		}
		var ps spec.Problems
		if c != nil || !errors.As(err, &ps) || len(ps) == 0 {
			t.Fatalf("%v, %T: %v", c, err, err)
		}
		for _, p := range ps {
			if p.What == "" || p.Do == "" || p.Pos.File != "freshet.yaml" || p.Pos.Line > 1+strings.Count(text, "\n")+
				strings.Count(text, "\r")+strings.Count(text, "\u0085")+strings.Count(text, "\u2028")+
				strings.Count(text, "\u2029") {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// everyText asks for the place of every character of the mappings.
func everyText(t *testing.T, c *Config, text string) {
	for _, m := range c.Mappings {
		if m.Table.Value == "" || !acts(&m) {
			t.Fatal("a mapping without a table or anything to do is given to a check")
		}
		whole(t, &m)
		for _, x := range textsOf(&m) {
			last := x.Pos
			for i := range x.Value {
				p := x.At(i)
				if p.Line < last.Line || p.Line == last.Line && p.Column < last.Column {
					t.Fatalf("%q: character %d stands at %v, before the one at %v, in\n%s", x.Value, i, p, last, text)
				}
				last = p
			}
		}
	}
}

// whole fails when an action lacks a part.
func whole(t *testing.T, m *spec.Mapping) {
	for path, x := range otherKeys(m) {
		if x.Value == "" {
			t.Fatalf("%s is given to a check without its text", path)
		}
	}
	follows := m.Rebuild != nil || m.Publish != nil || m.Stream != nil
	switch r := m.Rebuild; {
	case follows && len(m.Keys) == 0:
		t.Fatal("an action on the mapping's keys is given to a check without them")
	case r != nil && r.FromRow == (r.Query.Value != ""):
		t.Fatal("a rebuild is given to a check that has both ways to make the value, or none")
	case r != nil && r.Missing != nil && r.Missing.TTL == 0:
		t.Fatal("a negative entry is given to a check that would stay forever")
	}
}

// textsOf returns every text of a mapping that has a language of its own.
func textsOf(m *spec.Mapping) []spec.Text {
	texts := append([]spec.Text{m.Table, m.When}, slices.Concat(m.Keys, m.Columns)...)
	for _, x := range otherKeys(m) {
		texts = append(texts, x)
	}
	for _, s := range m.Scope {
		texts = append(texts, s.Column, s.Holds)
	}
	if r := m.Rebuild; r != nil {
		texts = append(append(texts, r.Query, r.Value), r.Columns...)
	}
	if h := m.Hash; h != nil {
		texts = append(texts, h.Field, h.Value)
	}
	if s := m.Set; s != nil {
		texts = append(texts, s.Member)
	}
	if z := m.ZSet; z != nil {
		texts = append(texts, z.Member, z.Score)
	}
	if p := m.Publish; p != nil {
		texts = append(texts, p.Channel, p.Message)
	}
	return texts
}
