package operate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/proof/testbed"
)

// shop is a configuration with three mappings.
const shop = `
source: {name: shop, addresses: ["127.0.0.1:3306"], user: u}
redis: {addresses: ["127.0.0.1:6379"]}
mappings:
  - table: shop.product
    keys: ["product:{id}", "category:{category_id}:products"]
  - table: shop.user
    keys: ["user:{id}"]
    hash: {key: "users", field: "{id}", value: "{name}"}
  - table: "crm_{00..63}.user"
    keys: ["user:{id}", "{schema}:user:{id}"]
`

// byHand returns what has keys forgotten under a configuration, and its book.
func byHand(t *testing.T, text string) (Invalidations, *doubt.Book) {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(text), CheckMappings)
	testbed.Must(t, err)
	book, err := doubt.New(&doubttest.Memory{}, nil, nil)
	testbed.Must(t, err)
	return Invalidations{Book: func() *doubt.Book { return book }, Config: c}, book
}

func TestWhatIsAskedForByHandIsADoubt(t *testing.T) {
	for _, c := range []struct {
		name              string
		scope             admin.Scope
		tables, templates []string
		message           string
	}{
		{name: "everything", scope: admin.Scope{All: true}, message: "forget all keys of all mappings"},
		{
			name: "a table", scope: admin.Scope{Tables: []string{"shop.product"}}, tables: []string{"shop.product"},
			message: "forget keys: those of shop.product",
		},
		{
			name: "a table of many, in another letter case", scope: admin.Scope{Tables: []string{"CRM_07.user", "shop.user"}},
			tables: []string{"CRM_07.user", "shop.user"}, message: "those of CRM_07.user, shop.user",
		},
		{
			name: "templates", scope: admin.Scope{Templates: []string{"user:{id}", "users", "user:{id}"}},
			templates: []string{"user:{id}", "users"}, message: "forget keys: those of user:{id}, users",
		},
		{
			name: "a mapping by its number", scope: admin.Scope{Mappings: []int{2}},
			templates: []string{"user:{id}", "users"}, message: "those of user:{id}, users",
		},
		{
			name: "a pattern alone", scope: admin.Scope{Pattern: "user:17*"},
			message: "all keys of all mappings, as far as they match a pattern",
		},
		{
			name: "a table and a mapping are all templates of both",
			scope: admin.Scope{
				Tables: []string{"shop.product"}, Mappings: []int{3}, Pattern: "*7",
			},
			templates: []string{"category:{category_id}:products", "product:{id}", "user:{id}", "{schema}:user:{id}"},
			message:   "those of shop.product, and those of",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, book := byHand(t, shop)
			done, err := v.Invalidate(t.Context(), c.scope)
			testbed.Must(t, err)
			id := done.ID
			l := book.List()
			if len(l) != 1 || l[0].ID != id || l[0].Cause != alarm.ByHand || l[0].Source != "shop" ||
				!slices.Equal(l[0].Tables, c.tables) || !slices.Equal(l[0].Templates, c.templates) ||
				l[0].Pattern != c.scope.Pattern || !strings.Contains(l[0].Message, c.message) ||
				strings.Contains(l[0].Message, "17") {
				t.Errorf("%s: %+v", id, l)
			}
			if again, err := v.Invalidate(t.Context(), c.scope); err != nil || again != done {
				t.Errorf("once more it is %+v, %v", again, err)
			}
			all, err := v.Book.ListDoubts(t.Context())
			if err != nil || all[0].Count != 2 || !slices.Equal(all[0].Templates, c.templates) ||
				all[0].Pattern != c.scope.Pattern {
				t.Errorf("the API shows %+v, %v", all, err)
			}
		})
	}
}

func TestWhatNoMappingIsForIsRefusedWithASuggestion(t *testing.T) {
	v, book := byHand(t, shop)
	for _, c := range []struct {
		scope admin.Scope
		want  string
	}{
		{admin.Scope{Tables: []string{"shop.prodcut"}}, `no mapping is for "shop.prodcut": did you mean "shop.product"?`},
		{
			admin.Scope{Tables: []string{"warehouse.bin"}},
			`no mapping is for "warehouse.bin": mappings are for crm_{00..63}.user, shop.product, shop.user`,
		},
		{admin.Scope{Tables: []string{"product"}}, `"product" is no table: write schema.table`},
		{admin.Scope{Tables: []string{"crm_*.user"}}, `"crm_*.user" is no table: write schema.table; where a mapping has many`},
		{admin.Scope{Templates: []string{"product:{ID}"}}, `no mapping has the key "product:{ID}": did you mean "product:{id}"?`},
		{admin.Scope{Templates: []string{"x"}}, `no mapping has the key "x": mappings have category:{category_id}:products, `},
		{admin.Scope{Mappings: []int{0}}, "there is no mapping 0: the configuration has 1 to 3"},
		{admin.Scope{Since: "yesterday"}, `"yesterday" is no time: write how long ago, such as 10m or 2h, or a time such as 20`},
		{admin.Scope{Since: "-10m"}, `"-10m" is not in the past`},
		{admin.Scope{Since: "0s"}, `"0s" is not in the past`},
		{admin.Scope{Since: "2999-01-31T08:00:00Z"}, `"2999-01-31T08:00:00Z" is not in the past`},
		{admin.Scope{Mappings: []int{1, 4}}, "there is no mapping 4: the configuration has 1 to 3"},
	} {
		_, err := v.Invalidate(t.Context(), c.scope)
		var unfit admin.Unfit
		if !errors.As(err, &unfit) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.scope, err, c.want)
		}
	}
	if l := book.List(); len(l) > 0 {
		t.Errorf("%+v", l)
	}
}

func TestRequestsByHandAreBounded(t *testing.T) {
	v, book := byHand(t, shop)
	ask := func(pattern string) error {
		_, err := v.Invalidate(t.Context(), admin.Scope{Pattern: pattern})
		return err
	}
	for i := range maxByHand {
		testbed.Must(t, ask(strings.Repeat("?", i+1)))
	}
	if err := ask("*"); err == nil || !strings.Contains(err.Error(), "100 such requests are not answered yet") {
		t.Error(err)
	}
	testbed.Must(t, ask("?")) // one that waits can be asked for again
	testbed.Must(t, v.Book.DismissDoubt(t.Context(), book.List()[0].ID, book.List()[0].Last))
	testbed.Must(t, ask("*"))
}

func TestAProcessDoesByHandWhatItCan(t *testing.T) {
	v, _ := byHand(t, shop)
	var elsewhere admin.NotHere
	if _, err := v.InvalidateKeys(t.Context(), []string{"product:1"}); !errors.As(err, &elsewhere) ||
		!strings.Contains(err.Error(), "a running freshet") {
		t.Error(err)
	}
	v.Forget = func(_ context.Context, keys []string) (int, error) { return len(keys), nil }
	if done, err := v.InvalidateKeys(t.Context(), []string{"product:1", "product:2"}); done.Count != 2 || err != nil {
		t.Error(done, err)
	}
	v.NoRedis = true
	_, err := v.InvalidateKeys(t.Context(), []string{"product:1"})
	_, all := v.Invalidate(t.Context(), admin.Scope{All: true})
	for _, err := range []error{err, all} {
		if !errors.As(err, &elsewhere) || !strings.Contains(err.Error(), "ask an invalidator") {
			t.Error(err)
		}
	}
}

// An invalidator has no mappings of its own: it goes by those that readers have kept.
func TestAnInvalidatorIsAskedByHandForTheKeysOfItsOwnRedis(t *testing.T) {
	v, book := byHand(t, `
redis: {addresses: ["127.0.0.1:6379"]}
eventlog: {kind: kafka, kafka: {brokers: ["127.0.0.1:9092"], topic: t, group: g}}
`)
	facts := &doubttest.Memory{}
	v.Facts = func() doubt.SharedFacts { return facts }
	ask := func(s admin.Scope) error {
		_, err := v.Invalidate(t.Context(), s)
		return err
	}
	if err := ask(admin.Scope{All: true}); err == nil || !strings.Contains(err.Error(), "no reader has kept") {
		t.Error(err)
	}
	c, err := config.Parse("f.yaml", []byte(shop), CheckMappings)
	testbed.Must(t, err)
	testbed.Must(t, KeepMappings(t.Context(), facts, "shop", c.Mappings))
	testbed.Must(t, ask(admin.Scope{Mappings: []int{2}}))
	d := book.List()[0]
	if d.Group != "g" || d.Source != "" || !slices.Equal(d.Templates, []string{"user:{id}", "users"}) {
		t.Errorf("%+v", d)
	}
	testbed.Must(t, KeepMappings(t.Context(), facts, "blog", spectest.Specs(spectest.Keys("post:{id}").On("blog.post"))))
	testbed.Must(t, ask(admin.Scope{Tables: []string{"blog.post", "shop.user"}}))
	var unfit admin.Unfit
	err = ask(admin.Scope{Mappings: []int{2}})
	if !errors.As(err, &unfit) || !strings.Contains(err.Error(), "2 sources") {
		t.Error(err)
	}
	if err := ask(admin.Scope{Tables: []string{"shop.review"}}); !errors.As(err, &unfit) {
		t.Error(err)
	}
}

func TestADoubtIsAskedForInTheWordsOfTheAPI(t *testing.T) {
	v, book := byHand(t, shop)
	done, err := v.Invalidate(t.Context(), admin.Scope{All: true})
	testbed.Must(t, err)
	id := done.ID
	book.Stuck(doubt.Doubt{ID: id}, "it cannot be answered")
	show := func() admin.Doubt {
		all, err := v.Book.ListDoubts(t.Context())
		testbed.Must(t, err)
		return all[0]
	}
	if d := show(); !d.Stuck || d.Answer != "it cannot be answered" || d.Asked {
		t.Errorf("%+v", d)
	}
	testbed.Must(t, v.Book.AnswerDoubt(t.Context(), id))
	if d := show(); d.Stuck || !d.Asked {
		t.Errorf("%+v", d)
	}
	if err := v.Book.AnswerDoubt(t.Context(), "nothing"); !errors.Is(err, admin.ErrNoDoubt) {
		t.Error(err)
	}
}
