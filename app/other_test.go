package app

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/router"
)

// The database that was given the name of another one mostly has the same mappings: freshet is set up twice from one
// file. What is read under the name says nothing of its tables, so its keys are not known before it has its own name.
func TestTheKeysOfAnotherDatabaseAreKnownByItsOwnNameAlone(t *testing.T) {
	of := func(source string, keys ...string) *part {
		r, err := router.New(spectest.Specs(spectest.Keys(keys...)), router.Options{})
		must(t, err)
		return &part{Learned: operate.Learned{Source: source, Mappings: r.Mappings()}}
	}
	both := []string{"parcel:{id}", "product:{id}"}
	shared := doubt.Doubt{ID: "1", Cause: alarm.SourceShared, Source: "shop", Templates: both}
	unnamed := shared
	unnamed.Templates = nil
	other := doubt.Doubt{ID: "1", Cause: alarm.ByHand, Source: "shop", Templates: []string{"product:{id}"}}
	for what, c := range map[string]struct {
		of    doubt.Doubt
		parts []*part
		// alone: there are no other processes.
		alone bool
		want  string
	}{
		"the same mappings": {shared, []*part{of("shop", both...)}, false, "no source but shop has the key parcel:{id}"},
		"some of them": {
			shared, []*part{of("shop", both...), of("own", "parcel:{id}")}, false, "has the key product:{id}",
		},
		"under its own name":     {shared, []*part{of("shop", "x:{id}"), of("own", both...)}, false, ""},
		"they are not named":     {unnamed, []*part{of("shop", both...), of("own", both...)}, false, "was not recorded"},
		"one process":            {shared, []*part{of("shop", both...)}, true, ""},
		"one process, not named": {unnamed, []*part{of("shop", both...)}, true, ""},
		"another cause":          {other, []*part{of("shop", both...)}, false, ""},
		"not mapped any more": {
			other, []*part{of("shop", "x:{id}")}, false, "no mapping has the key product:{id} any more",
		},
	} {
		a := &answering{shared: !c.alone}
		if why := a.unknown(&c.of, c.parts); (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", what, why, c.want)
		}
	}
}

// What is known of all sources waits for the readers of all of them. What is about one of them does not wait with it.
func TestADoubtAboutAnotherDatabaseHoldsUpNoneAboutTheSource(t *testing.T) {
	b := book(t, nil)
	g := &groupAnswers{answering: &answering{doubts: b}}
	for _, d := range []doubt.Doubt{
		{Cause: alarm.SourceShared, Source: "shop", Templates: []string{"product:{id}"}, Asked: true},
		{Cause: alarm.TruncatedTable, Source: "shop", Tables: []string{"shop.product"}},
	} {
		d.Message = "a sentence"
		must(t, b.Record(t.Context(), d))
	}
	for source, want := range map[string]alarm.Kind{"shop": alarm.TruncatedTable, "": alarm.SourceShared} {
		if due := g.of(source).due(); len(due) != 1 || due[0].Cause != want {
			t.Errorf("source %q: due is %+v", source, due)
		}
	}
}
