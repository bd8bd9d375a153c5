package router

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
)

func rebuilds(as event.Form, keys ...string) Mapping {
	return spec(keys...).with(func(m *Mapping) { m.Rebuild = fromRow(as, "id"); m.Rebuild.Value = text("{id}", 9); trimFor(m) })
}

// trimFor leaves out what the form does not take.
func trimFor(m *Mapping) {
	if m.Rebuild.As == event.FormString {
		m.Rebuild.Columns = nil
	} else {
		m.Rebuild.Value = Text{}
	}
}

func TestActionsThatWriteTheSameKeyArePointedOut(t *testing.T) {
	hash := func(key, field, value string) Mapping {
		return Mapping{Table: text("shop.product", 1), Hash: &Hash{Key: text(key, 5), Field: text(field, 6), Value: text(value, 7)}}
	}
	set := func(key string) Mapping {
		return Mapping{Table: text("shop.product", 1), Set: &Set{Key: text(key, 5), Member: text("{name}", 6)}}
	}
	board := func(key, score string) Mapping {
		return Mapping{Table: text("shop.product", 1), ZSet: &ZSet{Key: text(key, 5), Member: text("{name}", 6), Score: text(score, 7)}}
	}
	expire := Mapping{Table: text("shop.product", 1), Expire: &Expire{Keys: []Text{text("k:{id}", 5)}, In: time.Second}}
	for _, c := range []struct {
		what  string
		specs []Mapping
		want  string
	}{
		{"two rebuilds", []Mapping{rebuilds(event.FormJSON, "k:{id}"), rebuilds(event.FormString, "k:{category_id}")}, "both write it"},
		{"two keys of one rebuild", []Mapping{rebuilds(event.FormJSON, "k:{id}", "k:{category_id}")}, ""},
		{"a rebuild and a delete", []Mapping{rebuilds(event.FormJSON, "k:{id}"), spec("k:{id}")}, ""},
		{"a rebuild and a shorter life", []Mapping{rebuilds(event.FormJSON, "k:{id}"), expire}, ""},
		{"other keys", []Mapping{rebuilds(event.FormJSON, "k:{id}"), rebuilds(event.FormJSON, "l:{id}")}, ""},
		{"a rebuilt string and a field", []Mapping{rebuilds(event.FormJSON, "k:{id}"), hash("k:{id}", "a", "")}, "one takes it for a string, the other for a hash"},
		{"a rebuilt hash and a field", []Mapping{rebuilds(event.FormHash, "k:{id}"), hash("k:{id}", "a", "b")}, "both write it"},
		{"two fields", []Mapping{hash("k:{id}", "a", "x"), hash("k:{id}", "b", "x")}, ""},
		{"the same field", []Mapping{hash("k:{id}", "a", "x"), hash("k:{id}", "a", "y")}, "both set the same field"},
		{"a set and a counter", []Mapping{set("k"), gen("k")}, "one takes it for a set, the other for a counter"},
		{"two sets", []Mapping{set("k"), set("k")}, ""},
		{"two boards", []Mapping{board("k", "{id}"), board("k", "{price}")}, "both write scores to it"},
	} {
		got := found(t, c.specs...)
		if all := strings.Join(got, "\n"); (c.want == "") != (len(got) == 0) || !strings.Contains(all, c.want) {
			t.Errorf("%s: %q, want %q", c.what, all, c.want)
		}
	}
}

func TestMappingsThatWriteAndMissChangesArePointedOut(t *testing.T) {
	board := Mapping{Table: text("shop.product", 1), ZSet: &ZSet{Key: text("z", 5), Member: text("{id}", 6)}}
	for _, c := range []struct {
		spec Mapping
		want []string
	}{
		{rebuilds(event.FormJSON, "k:{id}").events(Events{Insert: true}), []string{
			"the mapping writes what rows hold, and is not for delete: what was written of a row stays when the row goes",
			"the mapping writes what rows hold, and is not for update: what was written of a row stays when the row changes",
		}},
		{spec("k:{id}").events(Events{Insert: true}), nil},
		{board.events(Events{Delete: true}), nil},
		{board, []string{"without a score, an INSERT or UPDATE deletes the whole sorted set: where the member belongs cannot be known"}},
		// What ceases to match is removed, so one image is enough.
		{rebuilds(event.FormJSON, "k:{id}").when("row.status == 'live'"), nil},
	} {
		if diff := cmp.Diff(c.want, found(t, c.spec)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWhatNeedsWholeRowImages(t *testing.T) {
	r := mustNew(t, everything(spec("k:{id}")), spec("l:{id}"))
	var got []string
	for _, w := range r.Whole() {
		got = append(got, w.What)
	}
	want := []string{`rebuild of "k:{id}"`, `hash of "h:{category_id}"`, `set of "s:{category_id}"`, `zset of "z:{category_id}"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
