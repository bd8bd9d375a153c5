package routertest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Batches draws what one reader hands on: some transactions over several tables, routed under several mappings. Their
// batches are cut anywhere between two rows, and belong to the caller that draws them.
func Batches(t *rapid.T) []*event.Batch {
	r, err := router.New(rapid.SliceOfN(mappings, 1, 6).Draw(t, "mappings"), router.Options{})
	if err != nil {
		t.Fatalf("mappings that should be valid: %v", err)
	}
	f := &feed{t: t, router: r, tables: tables()}
	for _, table := range f.tables {
		needs, err := r.Bind(table)
		if err != nil {
			t.Fatalf("mappings that should fit: %v", err)
		}
		f.needs = append(f.needs, needs)
	}
	f.at = event.Version{
		Epoch: rapid.Uint32Range(0, 3).Draw(t, "epoch"), File: 112,
		Pos: rapid.SampledFrom([]uint64{4, 1<<32 - 500}).Draw(t, "pos"),
	}
	f.batch.Reset()
	for range rapid.IntRange(1, 5).Draw(t, "transactions") {
		f.transaction()
	}
	f.handOn()
	return f.done
}

// Item is one invalidation with all that it refers to.
type Item struct {
	Key     string
	Version event.Version
	// Origin is whole, but for its transaction's XID: that is for the reader only.
	Origin event.Origin
	Action event.Action
	Intent event.Intent
	// Effect is nil for a plain delete.
	Effect *event.Effect
	// Fields are the action's; nil ones are null.
	Fields [][]byte
}

// Items returns the invalidations of batches, in their order.
func Items(batches ...*event.Batch) []Item {
	var all []Item
	for _, b := range batches {
		for i := range b.Invalidations {
			inv := &b.Invalidations[i]
			o := b.Origin(int(inv.Origin))
			o.Tx.XID = ""
			fields, err := b.Fields(i).All()
			if err != nil {
				panic(err)
			}
			all = append(all, Item{b.Key(i), b.Version(i), o, inv.Action, inv.Intent, b.EffectOf(i), fields})
		}
	}
	return all
}

// tables returns three tables of the same columns.
func tables() []*event.Table {
	var all []*event.Table
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, &event.Table{Schema: "shop", Name: name, Columns: []event.Column{
			{Name: "id", Type: "bigint unsigned", Class: event.ClassInt, Unsigned: true},
			{Name: "n", Type: "int", Class: event.ClassInt},
			{Name: "s", Type: "varchar(64)", Class: event.ClassText, Collation: "utf8mb4_bin"},
			{Name: "b", Type: "varbinary(16)", Class: event.ClassBinary},
			{Name: "d", Type: "decimal(10,2)", Class: event.ClassDecimal},
		}})
	}
	return all
}

func text(s string) spec.Text { return spec.Text{Value: s} }

func texts(t *rapid.T, label string, from ...string) []spec.Text {
	var all []spec.Text
	for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 4, rapid.ID[string]).Draw(t, label) {
		all = append(all, text(s))
	}
	return all
}

// keys are templates with and without filters and copies, some of which make the same key for several rows or mappings.
var keys = []string{
	"{table}:{id}", "{schema}:{table}", "cat:{n}", "cat:{n|default:0}", "s:{s|lower}", "raw:{b}", "hot:{id}:{0..2}",
	"many:{n}:{00..19}",
	"{s|md5}", "d:{d}", "{n|mod:4|pad:3}:{id}", "all", "{{{id}}}:x",
}

// mappings draws a mapping of any of the tables, with any action.
var mappings = rapid.Custom(func(t *rapid.T) spec.Mapping {
	m := spec.Mapping{
		Table:        text(rapid.SampledFrom([]string{"shop.a", "shop.b", "shop.c", "shop.*"}).Draw(t, "table")),
		SecondDelete: rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Second}).Draw(t, "D"),
		RateLimit:    rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "rate limit"),
		When: text(rapid.SampledFrom([]string{
			"", "", "row.n > 0", "old.s != row.s",
			"row.d > 1 || old.n == 2",
		}).Draw(t, "when")),
		Events: rapid.SampledFrom([]spec.Events{{}, {}, {Update: true}, {Insert: true, Delete: true}}).Draw(t, "events"),
	}
	if rapid.IntRange(0, 3).Draw(t, "with columns") == 0 {
		m.Columns = texts(t, "columns", "s", "n", "d")
	}
	if rapid.Bool().Draw(t, "plain") {
		m.Keys = texts(t, "keys", keys...)
		return m
	}
	acts(t, &m)
	return m
})

// acts gives a mapping one action, or several.
func acts(t *rapid.T, m *spec.Mapping) {
	some := func(label string) bool { return rapid.IntRange(0, 2).Draw(t, label) == 0 }
	if some("rebuild") {
		m.Keys, m.Rebuild = texts(t, "keys", keys...), rapid.SampledFrom(rebuilds).Draw(t, "rebuild")
	}
	if some("hash") {
		m.Hash = &spec.Hash{
			Key: text("h:{n}"), Field: text("{b}"),
			Value: text(rapid.SampledFrom([]string{"", "{s}"}).Draw(t, "value")),
		}
	}
	if some("set") {
		m.Set = &spec.Set{Key: text("m:{n}"), Member: text("{b}")}
	}
	if some("zset") {
		m.ZSet = &spec.ZSet{
			Key: text("z:{n}"), Member: text("{id}"),
			Score: text(rapid.SampledFrom([]string{"", "{d}", "{s}"}).Draw(t, "score")),
		}
	}
	if some("expire") {
		m.Expire = &spec.Expire{Keys: texts(t, "expire", keys...), In: 3 * time.Second}
	}
	if some("incr") {
		m.Incr = text("gen:{n}")
	}
	if m.Keys == nil {
		m.Keys = texts(t, "keys", keys...)
	}
	if some("publish") {
		m.Publish = &spec.Publish{Channel: text("c:{n}"), Message: text("{b}")}
	}
	if some("stream") {
		m.Stream = &spec.Stream{Key: text("t:{n}"), MaxLen: 100}
	}
}

var rebuilds = []*spec.Rebuild{
	{FromRow: true},
	{
		FromRow: true, As: event.FormHash, TTL: time.Minute, Jitter: 0.1,
		Columns: []spec.Text{text("s"), text("d as price")},
	},
	{
		FromRow: true, As: event.FormString, Value: text("{s}/{b}"),
		Missing: &spec.Missing{Cache: text("-"), TTL: time.Second},
	},
	{Query: text("select s, d from a where id = :id and n = :n"), ExpireAt: time.Hour},
}

// feed routes random transactions.
type feed struct {
	t      *rapid.T
	router *router.Router
	tables []*event.Table
	needs  [][]event.Need

	batch  event.Batch
	done   []*event.Batch
	at     event.Version
	number uint64
}

// handOn does what a reader does when the source waits.
func (f *feed) handOn() {
	if f.batch.Len() > 0 {
		f.batch.Source, f.batch.Term = "main", 3
		f.done = append(f.done, f.batch.Clone())
	}
	f.batch.Reset()
}

// transaction routes rows events of tables in any order. Those of a compressed one have one place, and their rows are
// counted through.
func (f *feed) transaction() {
	t := f.t
	f.number++
	tx := &event.Tx{Committed: time.Date(2026, 3, 1, 12, 0, 0, int(f.number)*1000, time.UTC)}
	switch rapid.IntRange(0, 2).Draw(t, "gtid") {
	case 1:
		tx.GTID = event.GTID{UUID: [16]byte{1, 2, 3}, Number: f.number}
	case 2:
		tx.GTID = event.GTID{Domain: 1, Server: 2, Number: f.number}
	}
	compressed := rapid.Bool().Draw(t, "compressed")
	f.at.Pos, f.at.Row = f.at.Pos+300, 0
	for range rapid.IntRange(1, 5).Draw(t, "events") {
		table := rapid.IntRange(0, len(f.tables)-1).Draw(t, "table")
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			f.at.Row++
			f.row(tx, table)
		}
		if !compressed {
			f.at.Pos, f.at.Row = f.at.Pos+100, 0
		}
	}
}

func (f *feed) row(tx *event.Tx, table int) {
	c := event.Change{Table: f.tables[table], Tx: tx, Version: f.at, Op: event.Op(rapid.IntRange(1, 3).Draw(f.t, "op"))}
	if c.Op != event.Insert {
		c.Before = f.image(table)
	}
	if c.Op != event.Delete {
		c.After = f.image(table)
	}
	f.router.Route(&f.batch, &c)
	if rapid.IntRange(0, 9).Draw(f.t, "cut") == 0 {
		f.handOn()
	}
}

// image draws a row. A column may be NULL or missing.
func (f *feed) image(table int) []event.Value {
	var image []event.Value
	for _, n := range f.needs[table] {
		image = append(image, f.value(f.tables[table].Columns[n.Column].Name))
	}
	return image
}

func (f *feed) value(column string) event.Value {
	n := rapid.IntRange(0, 9).Draw(f.t, column)
	v := event.Value{Raw: []byte{byte(n)}}
	switch {
	case n == 8 && column != "id":
		return event.Value{Kind: event.Null}
	case n == 9 && column != "id":
		return event.Value{} // absent
	case column == "id":
		v.Kind, v.Num = event.Uint, uint64(n)
	case column == "n":
		v.Kind, v.Num = event.Int, uint64(n%4)
	case column == "s":
		v.Kind, v.Text = event.Text, []byte([]string{"", "x", "Üx", `"\` + "\n", "17", "1.5", "{", "\u2028"}[n])
	case column == "b":
		v.Kind, v.Text = event.Bytes, []byte([]string{"", "\xff", "x", "\x00", "ab", "\xc3\x28", ",", "]"}[n])
	default:
		v.Kind, v.Text = event.Decimal, fmt.Appendf(nil, "%d.50", n)
	}
	return v
}
