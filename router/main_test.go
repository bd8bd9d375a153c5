package router

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, specs ...spectest.Mapping) *Router {
	t.Helper()
	r, err := New(spectest.Specs(specs...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// row makes an image of the columns that the router needs, from a map by column. A column that the map lacks is
// Absent.
type row map[string]any

// null is SQL NULL in a row.
type null struct{}

func value(v any) event.Value {
	switch v := v.(type) {
	case null:
		return event.Value{Kind: event.Null}
	case int:
		return event.Value{Kind: event.Int, Num: uint64(v), Raw: fmt.Append(nil, v)}
	case uint64:
		return event.Value{Kind: event.Uint, Num: v, Raw: fmt.Append(nil, v)}
	case float64:
		panic("write a DECIMAL as dec")
	case dec:
		return event.Value{Kind: event.Decimal, Text: []byte(v), Raw: []byte(v)}
	case zerofill:
		n, _ := strconv.ParseUint(string(v), 10, 64)
		return event.Value{Kind: event.Uint, Num: n, Text: []byte(v), Raw: []byte(v)}
	case string:
		return event.Value{Kind: event.Text, Text: []byte(v), Raw: []byte(v)}
	case doc:
		return event.Value{Kind: event.JSON, Text: []byte(v), Raw: []byte(v)}
	case []byte:
		return event.Value{Kind: event.Bytes, Text: v, Raw: v}
	}
	return event.Value{Kind: event.Opaque, Raw: []byte("?")}
}

// dec is a DECIMAL in a row, zerofill a number that prints with leading zeros.
type (
	dec      string
	zerofill string
)

func (m row) image(t *event.Table, needs []event.Need) []event.Value {
	if m == nil {
		return nil
	}
	out := make([]event.Value, len(needs))
	for i, n := range needs {
		if v, ok := m[t.Columns[n.Column].Name]; ok {
			out[i] = value(v)
		}
	}
	return out
}

// feed routes changes into one batch, each a rows event of its own unless same is called before.
type feed struct {
	t     testing.TB
	r     *Router
	table *event.Table
	batch event.Batch
	pos   uint64
	row   uint32
}

func newFeed(t testing.TB, r *Router, table *event.Table) *feed {
	t.Helper()
	if _, err := r.Bind(table); err != nil {
		t.Fatal(err)
	}
	return &feed{t: t, r: r, table: table}
}

// change routes the change from old to row; nil stands for no row.
func (f *feed) change(old, row row) {
	f.pos, f.row = f.pos+100, 0
	f.same(old, row)
}

// same is change within the rows event of the last one.
func (f *feed) same(old, row row) {
	f.row++
	needs, _ := f.r.Bind(f.table)
	c := event.Change{
		Table: f.table, Tx: &event.Tx{}, Op: event.Update, Version: event.Version{Epoch: 1, File: 1, Pos: f.pos, Row: f.row},
		Before: old.image(f.table, needs), After: row.image(f.table, needs),
	}
	if old == nil {
		c.Op = event.Insert
	}
	if row == nil {
		c.Op = event.Delete
	}
	f.r.Route(&f.batch, &c)
}

// keys returns the keys of the batch and empties it.
func (f *feed) keys() []string {
	b := f.batch.Clone()
	f.batch.Reset()
	return batchKeys(b)
}

func batchKeys(b *event.Batch) []string {
	keys := []string{}
	for i := range b.Len() {
		keys = append(keys, b.Key(i))
	}
	return keys
}

// heard is a Reporter that keeps what it is told.
type heard []string

func (h *heard) Report(t Trouble, _, _, message string) {
	*h = append(*h, fmt.Sprintf("%d %s", t, message))
}

func (h *heard) String() string { return strings.Join(*h, "\n") }

// doc is a JSON column in a row.
type doc string
