package lint

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

func rebuilds(as event.Form, keys ...string) spectest.Mapping {
	return spectest.Keys(keys...).With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(as, "id")
		m.Rebuild.Value = spectest.Text("{id}", 9)
		trimFor(m)
	})
}

// trimFor leaves out what the form does not take.
func trimFor(m *spectest.Mapping) {
	if m.Rebuild.As == event.FormString {
		m.Rebuild.Columns = nil
	} else {
		m.Rebuild.Value = spec.Text{}
	}
}

func TestActionsThatWriteTheSameKeyArePointedOut(t *testing.T) {
	hash := func(key, field, value string) spectest.Mapping {
		return spectest.Mapping{
			Table: spectest.Text("shop.product", 1),
			Hash:  &spec.Hash{Key: spectest.Text(key, 5), Field: spectest.Text(field, 6), Value: spectest.Text(value, 7)},
		}
	}
	set := func(key string) spectest.Mapping {
		return spectest.Mapping{
			Table: spectest.Text("shop.product", 1),
			Set:   &spec.Set{Key: spectest.Text(key, 5), Member: spectest.Text("{name}", 6)},
		}
	}
	board := func(key, score string) spectest.Mapping {
		return spectest.Mapping{
			Table: spectest.Text("shop.product", 1),
			ZSet:  &spec.ZSet{Key: spectest.Text(key, 5), Member: spectest.Text("{name}", 6), Score: spectest.Text(score, 7)},
		}
	}
	expire := spectest.Mapping{
		Table:  spectest.Text("shop.product", 1),
		Expire: &spec.Expire{Keys: []spec.Text{spectest.Text("k:{id}", 5)}, In: time.Second},
	}
	for _, c := range []struct {
		what  string
		specs []spectest.Mapping
		want  string
	}{
		{"two rebuilds", []spectest.Mapping{
			rebuilds(event.FormJSON, "k:{id}"),
			rebuilds(event.FormString, "k:{category_id}"),
		}, "both write it"},
		{"two keys of one rebuild", []spectest.Mapping{rebuilds(event.FormJSON, "k:{id}", "k:{category_id}")}, ""},
		{"a rebuild and a delete", []spectest.Mapping{rebuilds(event.FormJSON, "k:{id}"), spectest.Keys("k:{id}")}, ""},
		{"a rebuild and a shorter life", []spectest.Mapping{rebuilds(event.FormJSON, "k:{id}"), expire}, ""},
		{"other keys", []spectest.Mapping{rebuilds(event.FormJSON, "k:{id}"), rebuilds(event.FormJSON, "l:{id}")}, ""},
		{
			"a rebuilt string and a field",
			[]spectest.Mapping{rebuilds(event.FormJSON, "k:{id}"), hash("k:{id}", "a", "")},
			"one takes it for a string, the other for a hash",
		},
		{
			"a rebuilt hash and a field",
			[]spectest.Mapping{rebuilds(event.FormHash, "k:{id}"), hash("k:{id}", "a", "b")},
			"both write it",
		},
		{"two fields", []spectest.Mapping{hash("k:{id}", "a", "x"), hash("k:{id}", "b", "x")}, ""},
		{"the same field", []spectest.Mapping{hash("k:{id}", "a", "x"), hash("k:{id}", "a", "y")}, "both set the same field"},
		{
			"a set and a counter",
			[]spectest.Mapping{set("k"), spectest.Counter("k")},
			"one takes it for a set, the other for a counter",
		},
		{"two sets", []spectest.Mapping{set("k"), set("k")}, ""},
		{"two boards", []spectest.Mapping{board("k", "{id}"), board("k", "{price}")}, "both write scores to it"},
	} {
		got := found(t, c.specs...)
		if all := strings.Join(got, "\n"); (c.want == "") != (len(got) == 0) || !strings.Contains(all, c.want) {
			t.Errorf("%s: %q, want %q", c.what, all, c.want)
		}
	}
}

func TestMappingsThatWriteAndMissChangesArePointedOut(t *testing.T) {
	board := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		ZSet:  &spec.ZSet{Key: spectest.Text("z", 5), Member: spectest.Text("{id}", 6)},
	}
	for _, c := range []struct {
		spec spectest.Mapping
		want []string
	}{
		{rebuilds(event.FormJSON, "k:{id}").For(spec.Events{Insert: true}), []string{
			"the mapping writes what rows hold, and is not for delete: what was written of a row stays when the row goes",
			"the mapping writes what rows hold, and is not for update: what was written of a row stays when the row changes",
		}},
		{spectest.Keys("k:{id}").For(spec.Events{Insert: true}), nil},
		{board.For(spec.Events{Delete: true}), nil},
		{board, []string{"without a score, an INSERT or UPDATE deletes the whole sorted set: where the member belongs " +
			"cannot be known"}},
		// What ceases to match is removed, so one image is enough.
		{rebuilds(event.FormJSON, "k:{id}").If("row.status == 'live'"), nil},
	} {
		if diff := cmp.Diff(c.want, found(t, c.spec)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWhatNeedsWholeRowImages(t *testing.T) {
	r := mustNew(t, spectest.Everything(spectest.Keys("k:{id}")), spectest.Keys("l:{id}"))
	var got []string
	for _, w := range Writes(r) {
		got = append(got, w.What)
	}
	want := []string{
		`rebuild of "k:{id}"`, `hash of "h:{category_id}"`, `set of "s:{category_id}"`,
		`zset of "z:{category_id}"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What the mapping removes needs no warning, with `columns` or without.
func TestWhenOverRowAloneIsNoFindingWhereWhatCeasesToMatchIsRemoved(t *testing.T) {
	m := spectest.Keys("k:{id}").Of("name").If("row.status == 'live'").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON, "name")
	})
	if found := Check(mustNew(t, m), spectest.Product()); len(found) > 0 {
		t.Error(found)
	}
}
