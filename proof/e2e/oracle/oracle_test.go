package oracle

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// testColumn makes a column for a test.
func testColumn(name string, k kind) *column {
	return &column{name: name, columnType: columnType{kind: k}}
}

func at(c *column, filters ...filter) part {
	return part{of: c, make: func(_ *table, r row) ([]string, bool) {
		v := r.of(c)
		for _, f := range filters {
			v = f.apply(v)
		}
		return []string{v.text}, !v.null
	}}
}

func named(name string) filter {
	all := slices.Concat(digests, spellings)
	return all[slices.IndexFunc(all, func(f filter) bool { return f.text == name })]
}

// The examples of docs/mappings.md.
func TestTheEvaluatorMakesTheKeysOfTheDocumentation(t *testing.T) {
	id, email, name, team := testColumn("id", integer), testColumn("email", text), testColumn("name", text),
		testColumn("team_id", integer)
	image := row{
		"id": {text: "1234"}, "email": {text: " Ann@Example.com"}, "name": {text: "MySQL"},
		"team_id": {null: true},
	}
	for want, of := range map[string]template{
		"shard18:user:1234":                     {constant("shard"), at(id, modulo(64), pad(2)), constant(":user:"), at(id)},
		"mail:257c57037d384ae37ea27a07e8a01665": {constant("mail:"), at(email, named("trim"), named("lower"), named("md5"))},
		"bucket:4":                              {constant("bucket:"), at(name, named("crc32"), modulo(16))},
		"team:none":                             {constant("team:"), at(team, fallback("none"))},
	} {
		if got := of.keys(&table{}, image); len(got) != 1 || got[0] != want {
			t.Errorf("%q, the documentation says %q", got, want)
		}
	}
	if got := (template{constant("team:"), at(team)}).keys(&table{}, image); got != nil {
		t.Errorf("a key that needs a NULL: %q", got)
	}
	if got := (template{constant("hot:"), at(id), constant(":"), copies(0, 2, 1)}).keys(&table{},
		image); !slices.Equal(got, []string{"hot:1234:0", "hot:1234:1", "hot:1234:2"}) {
		t.Errorf("copies: %q", got)
	}
}

// shop is a table with a mapping of its own, and some changes of its rows.
func shop() (*World, []*change) {
	t := &table{schema: "shop", name: "product"}
	id, name, stock := testColumn("id", integer), testColumn("name", text), testColumn("stock", integer)
	t.columns = []*column{id, name, stock}
	m := &mapping{tables: []*table{t}, events: []string{"update", "delete"}, columns: []*column{stock}, keys: []template{
		{constant("p:"), at(id)}, {constant("n:"), at(name, named("lower")), copies(0, 1, 1)},
	}}
	m.when = either(stock, func(string) string { return "" }, func(v value) (bool, error) { return v.text != "9", nil })
	image := func(id, name, stock string) row {
		return row{"id": {text: id}, "name": {text: name}, "stock": {text: stock}}
	}
	noted := func(note string) row {
		r := image("10", "K", "1")
		r["note"] = value{text: note}
		return r
	}
	return &World{mappings: []*mapping{m}, committed: map[int]time.Time{1: time.Unix(100, 0)}}, []*change{
		{"INSERT", 1, t, nil, image("1", "A", "1")},
		{"UPDATE", 1, t, image("2", "B", "1"), image("2", "B", "2")},
		{"UPDATE", 1, t, image("3", "C", "1"), image("3", "D", "1")},
		{"UPDATE", 1, t, image("4", "E", "9"), image("4", "E", "9")},
		{"UPDATE", 1, t, image("5", "F", "1"), image("5", "F", "1")},
		{"UPDATE", 1, t, image("6", "G", "9"), image("7", "H", "9")},
		{"DELETE", 1, t, image("8", "I", "3"), nil},
		{"UPDATE", 1, t, noted("x"), noted("y")},
	}
}

func expected(w *World, changes []*change) map[string]*Key {
	keys := map[string]*Key{}
	for _, c := range changes {
		w.add(keys, c, yes)
	}
	return keys
}

// deletedAt is what a freshet does that deletes all keys of a world at a time.
func deletedAt(keys map[string]*Key, at time.Time) map[string]time.Time {
	all := map[string]time.Time{}
	for k, w := range keys {
		if w.Must {
			all[k] = at
		}
	}
	return all
}

func TestWhatIsWrongIsSeen(t *testing.T) {
	w, changes := shop()
	want := expected(w, changes)
	after := time.Unix(101, 0)
	if wrong := Compare(want, nil, deletedAt(want, after)); len(wrong) > 0 {
		t.Fatalf("what is right: %q", wrong)
	}
	if len(Compare(want, nil, deletedAt(want, time.Unix(99, 0)))) == 0 {
		t.Error("deletes before the commit are not seen")
	}
	for what, mutate := range map[string]func(*World, []*change){
		"an event too many":         func(w *World, _ []*change) { w.mappings[0].events = nil },
		"an event too few":          func(w *World, _ []*change) { w.mappings[0].events = []string{"update"} },
		"columns that do not count": func(w *World, _ []*change) { w.mappings[0].columns = nil },
		"a predicate left out":      func(w *World, _ []*change) { w.mappings[0].when = nil },
		"a filter left out": func(w *World,
			_ []*change,
		) {
			w.mappings[0].keys[1][1] = at(testColumn("name", text))
		},
		"a copy left out":             func(w *World, _ []*change) { w.mappings[0].keys[1][2] = copies(0, 0, 1) },
		"a template left out":         func(w *World, _ []*change) { w.mappings[0].keys = w.mappings[0].keys[1:] },
		"old images left out":         func(_ *World, all []*change) { all[2].old = all[2].after },
		"new images left out":         func(_ *World, all []*change) { all[2].after = all[2].old },
		"a value read wrong":          func(_ *World, all []*change) { all[6].old["id"] = value{text: "08"} },
		"a column of another's value": func(_ *World, all []*change) { all[6].old["id"] = all[6].old["stock"] },
		"a row left out":              func(_ *World, all []*change) { *all[6] = *all[1] },
	} {
		other, changes := shop()
		mutate(other, changes)
		if len(Compare(want, nil, deletedAt(expected(other, changes), after))) == 0 {
			t.Errorf("%s: not seen", what)
		}
	}
}

// An UPDATE that prints alike may be in the binlog or not: its keys may be deleted, and need not be.
func TestWhatIsOpenIsNotWrong(t *testing.T) {
	w, changes := shop()
	w.mappings[0].columns, w.mappings[0].when = nil, nil
	keys := expected(w, changes[4:5])
	if k := keys["p:5"]; k == nil || k.Must || len(Compare(keys, nil, nil)) > 0 ||
		len(Compare(keys, nil, map[string]time.Time{"p:5": time.Unix(1, 0)})) > 0 {
		t.Errorf("keys of a row that prints alike: %v", keys)
	}
}

func TestTheSameSeedMakesTheSameWorld(t *testing.T) {
	draw := func() string {
		w := New(rand.New(rand.NewPCG(7, 7)), true, 1)
		all := w.YAML()
		for _, t := range w.tables() {
			all += t.create() + strings.Join(t.triggers(), "") + w.statement()
		}
		return all
	}
	if a, b := draw(), draw(); a != b {
		t.Errorf("two worlds of one seed:\n%s\n%s", a, b)
	}
}
