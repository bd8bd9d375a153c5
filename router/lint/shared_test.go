package lint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

func TestWhatSeveralRowsWriteIsPointedOut(t *testing.T) {
	hash := func(key, field, value string) spectest.Mapping {
		return spectest.Mapping{
			Table: spectest.Text("shop.product", 1),
			Hash:  &spec.Hash{Key: spectest.Text(key, 5), Field: spectest.Text(field, 6), Value: spectest.Text(value, 7)},
		}
	}
	set := func(key, member string) spectest.Mapping {
		return spectest.Mapping{
			Table: spectest.Text("shop.product", 1),
			Set:   &spec.Set{Key: spectest.Text(key, 5), Member: spectest.Text(member, 6)},
		}
	}
	board := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		ZSet:  &spec.ZSet{Key: spectest.Text("z", 5), Member: spectest.Text("{name}", 6), Score: spectest.Text("{id}", 7)},
	}
	query := rebuilds(event.FormJSON, "k:{category_id}").With(func(m *spectest.Mapping) {
		m.Rebuild = &spec.Rebuild{Query: spectest.Text("SELECT 1 WHERE :category_id", 9)}
	})
	primary, pair := []string{"id"}, []string{"category_id", "SKU"}
	for _, c := range []struct {
		what string
		spec spectest.Mapping
		want string
	}{
		{"the primary key", rebuilds(event.FormJSON, "k:{ID}"), ""},
		{"the primary key and more", rebuilds(event.FormJSON, "k:{category_id}:{id|hex}"), ""},
		{
			"half of an index", rebuilds(event.FormJSON, "k:{category_id}"),
			"this key, since no unique index lies within category_id:",
		},
		{"a whole index", rebuilds(event.FormJSON, "k:{category_id}:{sku|trim|lower|md5}"), ""},
		{
			"one key of two", rebuilds(event.FormJSON, "k:{id}", "k:{category_id}:{category_id}"),
			"this key, since no unique index lies within category_id:",
		},
		{
			"a column of which the filters leave little", rebuilds(event.FormJSON, "k:{id|mod:16}"),
			"this key, since it is made of no column that tells rows apart",
		},
		{
			"a column whose NULLs are all one", rebuilds(event.FormJSON, "k:{category_id}:{sku|default:none}"),
			"no unique index lies within category_id:",
		},
		{"a constant", rebuilds(event.FormHash, "k"), "this key, since it is made of no column that tells rows apart"},
		{"a query", query, ""},
		{"a delete", spectest.Keys("k:{category_id}"), ""},
		{"a field", hash("k", "{id}", "{name}"), ""},
		{"half a field", hash("k", "{category_id}", "{id}"), "this field, since no unique index lies within category_id:"},
		{"a field in a key", hash("k:{category_id}", "{sku}", "{name}"), ""},
		{"a field that is only removed", hash("k", "{category_id}", ""), ""},
		{"a member", set("s:{sku}", "{category_id}"), ""},
		{"half a member", set("s", "{name}"), "this member, since no unique index lies within name:"},
		{"half a score", board, "this member, since no unique index lies within name:"},
	} {
		p := spectest.Product()
		unique := map[*event.Table][][]string{p: {primary, pair, {""}}}
		var got []string
		for _, f := range Shared(mustNew(t, c.spec), []*event.Table{user(), p}, unique) {
			if f.Do == "" || f.Table != "shop.product" || f.Pos.Line == 0 {
				t.Errorf("%s: %+v", c.what, f)
			}
			got = append(got, f.What)
		}
		if all := strings.Join(got, "\n"); (c.want == "") != (len(got) == 0) || len(got) > 1 ||
			!strings.Contains(all, c.want) {
			t.Errorf("%s: %q, want %q", c.what, all, c.want)
		}
	}
}

func TestAQueryWithoutAParameterIsPointedOut(t *testing.T) {
	query := func(sql string, keys ...string) spectest.Mapping {
		return spectest.Keys(keys...).With(func(m *spectest.Mapping) {
			m.Rebuild = &spec.Rebuild{Query: spectest.Text(sql,
				9)}
		})
	}
	var got []string
	for _, f := range Remarks(mustNew(
		t,
		query("(SELECT 1)", "k:{id}", "k"), query("SELECT count(*) FROM product", "n"), query("(SELECT :id)", "l:{id}"),
		spectest.Keys("d:{id}"),
	)) {
		got = append(got, f.String())
	}
	want := []string{"f.yaml:9:10: shop.product: the query has no parameter: whichever row changes, its key is given " +
		"the same value: write :column for what it should find, or a key without a column"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAScoreOfTextIsPointedOut(t *testing.T) {
	for score, want := range map[string]string{
		"{name}": "the score {name} is made of VARCHAR(64)", "{thumb}": "the score {thumb} is made of VARBINARY(16)",
		"1{status}": "the score {status} is made of ENUM(",
		"{id}":      "", "{price}": "", "{score}": "", "{made}": "", "{name|crc32}": "", "7": "",
	} {
		board := spectest.Mapping{
			Table: spectest.Text("shop.product", 1),
			ZSet:  &spec.ZSet{Key: spectest.Text("z", 5), Member: spectest.Text("{id}", 6), Score: spectest.Text(score, 7)},
		}
		got := strings.Join(found(t, board), "\n")
		if (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", score, got, want)
		}
	}
}
