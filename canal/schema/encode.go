package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
)

// stateVersion is the version of the encoding.
const stateVersion = 2

// stateWhole is the version of a state in which all columns of each table are known, or none: earlier releases read it.
const stateWhole = 1

// state is the encoded form of a tracker. Tables share the definitions that are equal, as those of shards are.
type state struct {
	Version     int               `json:"v"`
	Schemas     []stateSchema     `json:"schemas,omitempty"`
	Definitions []stateDefinition `json:"defs,omitempty"`
	// Tables are in the order in which they changed last.
	Tables []stateTable `json:"tables,omitempty"`
}

type stateSchema struct {
	Name      string `json:"s"`
	Charset   string `json:"cs,omitempty"`
	Collation string `json:"co,omitempty"`
	Whole     bool   `json:"whole,omitempty"`
}

type stateTable struct {
	Schema string `json:"s"`
	Table  string `json:"t"`
	// Definition is an ordinal in Definitions; -1: the table does not exist; -2: it is in doubt.
	Definition int `json:"d"`
	// Partial says that the table may have other columns than the definition.
	Partial bool `json:"p,omitempty"`
}

type stateDefinition struct {
	Charset   string        `json:"cs,omitempty"`
	Collation string        `json:"co,omitempty"`
	Columns   []stateColumn `json:"c"`
	RowEnd    string        `json:"re,omitempty"`
}

type stateColumn struct {
	Name      string `json:"n"`
	Type      string `json:"t"`
	Text      bool   `json:"x,omitempty"`
	Charset   string `json:"cs,omitempty"`
	Collation string `json:"co,omitempty"`
	Computed  bool   `json:"g,omitempty"`
}

const (
	stateAbsent = -1
	stateDoubt  = -2
)

// Encode returns the state, for [Decode]. The bytes are never written to again. While nothing changes the same slice
// is returned.
func (t *Tracker) Encode() []byte {
	t.changed = false
	if t.encoded != nil {
		return t.encoded
	}
	s := state{Version: stateWhole}
	for _, name := range sortedKeys(t.schemas, strings.Compare) {
		c := t.schemas[name]
		s.Schemas = append(s.Schemas, stateSchema{name, c.charset.charset, c.charset.collation, c.whole})
	}
	names := sortedKeys(t.tables, func(a, b ddl.Name) int { return cmp.Compare(t.tables[a].used, t.tables[b].used) })
	shared := sharing{ordinals: map[*definition]int{}, equal: map[string]*definition{}}
	for _, n := range names {
		e := t.tables[n]
		row := stateTable{Schema: n.Schema, Table: n.Table}
		switch {
		case e.status == known || e.status == partial:
			e.def = shared.one(e.def)
			row.Definition = shared.ordinals[e.def]
			if e.status == partial {
				row.Partial, s.Version = true, stateVersion
			}
		case e.status == absent:
			row.Definition = stateAbsent
		case t.implied(n) == doubt:
			continue
		default:
			row.Definition = stateDoubt
		}
		s.Tables = append(s.Tables, row)
	}
	s.Definitions = shared.list
	t.encoded = mustMarshal(s)
	return t.encoded
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}

// mustMarshal encodes what consists of strings, numbers and booleans, which cannot fail.
func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// sharing finds definitions that are equal.
type sharing struct {
	list []stateDefinition
	// ordinals are the places of definitions in the list; equal has them by what they look like when encoded.
	ordinals map[*definition]int
	equal    map[string]*definition
}

// one returns the definition that stands for all that are equal to d, which need not be kept then. Those that were
// found to be equal once are the same from then on, so that only new ones are looked at.
func (s *sharing) one(d *definition) *definition {
	if _, ok := s.ordinals[d]; ok {
		return d
	}
	out := stateDefinition{Charset: d.charset.charset, Collation: d.charset.collation, RowEnd: d.rowEnd}
	for _, c := range d.columns {
		out.Columns = append(out.Columns, stateColumn{c.name, c.typ, c.text, c.charset, c.collation, c.computed})
	}
	key := string(mustMarshal(out))
	if same := s.equal[key]; same != nil {
		return same
	}
	s.equal[key], s.ordinals[d] = d, len(s.list)
	s.list = append(s.list, out)
	return d
}

// Decode returns a tracker with the state that [Tracker.Encode] returned; of an empty one it knows nothing.
func Decode(b []byte, o Options) (*Tracker, error) {
	t, err := New(o)
	if err != nil || len(b) == 0 {
		return t, err
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("schema: saved state: %w", err)
	}
	if s.Version != stateVersion && s.Version != stateWhole {
		return nil, fmt.Errorf("schema: saved state: version %d, want %d: it was written by another release", s.Version,
			stateVersion)
	}
	defs := make([]*definition, len(s.Definitions))
	for i, d := range s.Definitions {
		defs[i] = &definition{charset: charsets{d.Charset, d.Collation}, rowEnd: d.RowEnd}
		for _, c := range d.Columns {
			cs := charsets{c.Charset, c.Collation}
			defs[i].columns = append(defs[i].columns, column{c.Name, c.Type, c.Text, cs, c.Computed})
		}
	}
	for _, c := range s.Schemas {
		*t.schemaOf(c.Name) = schema{charsets{c.Charset, c.Collation}, c.Whole}
	}
	for _, row := range s.Tables {
		n := t.key(ddl.Name{Schema: row.Schema, Table: row.Table}) // the source may fold names only now
		switch i := row.Definition; {
		case i >= 0 && i < len(defs):
			status := known
			if row.Partial {
				status = partial
			}
			t.set(n, entry{status: status, def: defs[i]})
		case i == stateAbsent:
			t.absent(n)
		case i == stateDoubt:
			t.doubt(n)
		default:
			return nil, fmt.Errorf("schema: saved state: table %s has no definition %d", n, i)
		}
	}
	t.changed = false
	return t, nil
}
