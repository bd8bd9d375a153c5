package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// lackingRouter makes a key from each row, and lacks a column for those at some positions: it reports that, and makes
// none.
type lackingRouter struct {
	fakeRouter
	lacks   map[uint64]bool
	reports func(kind router.Trouble, table, template, message string)
}

func (r *lackingRouter) Route(b *event.Batch, c *event.Change) {
	if r.lacks[c.Version.Pos] {
		r.reports(router.ColumnAbsent, c.Table.String(), "price:{price}", "a sentence")
		return
	}
	r.fakeRouter.Route(b, c)
}

// A row of a prepared transaction lacked a column of a key. Readers see what it was until the transaction is committed,
// which may be long after the doubt was answered: it comes again then, and not if it is rolled back. The keys of its
// other rows are remembered as ever.
func TestAPreparedRowWhoseKeyCannotBeNamedIsInDoubtWhenItIsCommitted(t *testing.T) {
	for name, c := range map[string]struct {
		positions []uint64
		commit    bool
		keys      []string
	}{
		"alone":       {[]uint64{100}, true, nil},
		"with others": {[]uint64{90, 100, 110}, true, []string{"product:90", "product:110"}},
		"rolled back": {[]uint64{90, 100}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			defer s.Close()
			r, l := xaReader(t, s)
			r.doubts = r.troubles.doubts
			r.router = &lackingRouter{lacks: map[uint64]bool{100: true}, reports: r.troubles.Report}
			prepare(t, r, xid, c.positions...)
			prepared := r.doubts.List()
			if len(prepared) != 1 || prepared[0].Cause != alarm.ColumnAbsent || prepared[0].At != version(1, 1, 100, 1) {
				t.Fatalf("when it is prepared: %+v", prepared)
			}
			must(t, r.doubts.Dismiss(t.Context(), prepared[0].ID, prepared[0].Last))
			if got := resolve(t, r, l, xid, c.commit, 500); !slices.Equal(got, c.keys) {
				t.Errorf("at its end: %q, want %q", got, c.keys)
			}
			d := r.doubts.List()
			if !c.commit {
				if len(d) != 0 {
					t.Errorf("when it is rolled back: %+v", d)
				}
				return
			}
			if len(d) != 1 || d[0].Cause != alarm.XAKeysUnknown || !slices.Equal(d[0].Tables, []string{"shop.product"}) ||
				d[0].At != version(1, 1, 500, 0) {
				t.Errorf("when it is committed: %+v", d)
			}
		})
	}
}

// Nobody has to ask for the answer to it.
func TestAKeyThatARowImageCannotNameIsForgottenByItself(t *testing.T) {
	b := book(t, nil)
	a := &answering{doubts: b, mine: func(*doubt.Doubt) bool { return true }, scoped: map[string]time.Time{}}
	for _, cause := range []alarm.Kind{alarm.ColumnAbsent, alarm.FirstStart} {
		must(t, b.Record(t.Context(), doubt.Doubt{Cause: cause, Tables: []string{"shop.product"}, Message: "a sentence"}))
	}
	if due := a.due(); len(due) != 1 || due[0].Cause != alarm.ColumnAbsent {
		t.Errorf("%+v", due)
	}
}

// Somebody who looks at a doubt that waits for its turn sees why.
func TestADoubtThatComesDuringTheRestAfterAnAnswerSaysSo(t *testing.T) {
	b := book(t, nil)
	a := &answering{doubts: b, mine: func(*doubt.Doubt) bool { return true }, rested: time.Now().Add(time.Minute)}
	must(t, b.Record(t.Context(), doubt.Doubt{Cause: alarm.RedisChanged, Message: "a sentence"}))
	must(t, a.answerDue(t.Context()))
	if said := b.List()[0].Answer; !strings.Contains(said, "after an answer freshet rests for 4 times as long") {
		t.Errorf("it says %q", said)
	}
}

// A row may lack a column of several keys. One scope finds all of them, and no keys of other templates.
func TestDoubtsAboutTemplatesOfATableAreAnsweredTogether(t *testing.T) {
	b := book(t, nil)
	a := &answering{doubts: b, mine: func(*doubt.Doubt) bool { return true }, scoped: map[string]time.Time{}}
	record := func(d doubt.Doubt) {
		d.Message = "a sentence"
		must(t, b.Record(t.Context(), d))
	}
	product, stock := []string{"shop.product"}, []string{"shop.stock"}
	record(doubt.Doubt{Cause: alarm.ColumnAbsent, Tables: product, Templates: []string{"price:{price}"}})
	record(doubt.Doubt{Cause: alarm.ColumnAbsent, Tables: product, Templates: []string{"name:{name}"}})
	record(doubt.Doubt{Cause: alarm.ColumnAbsent, Tables: stock, Templates: []string{"price:{price}"}})
	record(doubt.Doubt{Cause: alarm.ByHand, Tables: product, Templates: []string{"price:{price}"}, Pattern: "*7"})
	record(doubt.Doubt{Cause: alarm.TruncatedTable, Tables: product})
	var got []string
	for len(a.due()) > 0 {
		due := a.due()
		var task scope.Task
		operate.Narrow(&task, due...)
		what := task.Pattern
		for _, template := range []string{"price:{price}", "name:{name}", "product:{id}"} {
			action := router.Action{Key: &router.Template{Text: spec.Text{Value: template}}}
			if task.Only == nil || task.Only(&keyspace.Target{Action: &action}) {
				what += " " + template
			}
		}
		got = append(got, due[0].Tables[0]+what)
		for _, d := range due {
			must(t, b.Dismiss(t.Context(), d.ID, d.Last))
		}
	}
	want := []string{
		"shop.product price:{price} name:{name}", "shop.stock price:{price}", "shop.product*7 price:{price}",
		"shop.product price:{price} name:{name} product:{id}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("answered\n%q, want\n%q", got, want)
	}
}
