package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Shared returns the actions that write one thing for several rows: a rebuilt key, the field of a hash or the member of
// a set within whose columns no unique index of the table lies. Of such rows the last change wins, and when one of them
// goes, what was written goes with it, though others are left. unique has for each of the tables the columns of each of
// its unique indexes.
//
// It may be called from any goroutine.
func Shared(r *router.Router, tables []*event.Table, unique map[*event.Table][][]string) []Finding {
	k := &checker{}
	for _, t := range tables {
		for _, m := range r.Mappings() {
			if !m.Matches(t) {
				continue
			}
			for i := range m.Actions {
				k.shared(&m.Actions[i], t, unique[t])
			}
		}
	}
	return k.sorted()
}

func (k *checker) shared(a *router.Action, t *event.Table, unique [][]string) {
	what, do := "", "add the columns of a unique index"
	switch {
	case !a.Writes() || a.Kind == event.ActionRebuild && a.Effect.Query != "":
		return // a query reads what there is now
	case a.Kind == event.ActionRebuild:
		what, do = "this key", do+", or rebuild by query"
	case a.Kind == event.ActionHash:
		what, do = "this field", do+" to the key or to the field"
	default:
		what, do = "this member", do+" to the key or to the member"
	}
	columns := telling(a)
	if slices.ContainsFunc(unique, func(index []string) bool { return within(index, columns) }) {
		return
	}
	reason := "it is made of no column that tells rows apart"
	if len(columns) > 0 {
		reason = "no unique index lies within " + strings.Join(columns, ", ")
	}
	k.report(a.Key.Text.At(0), t,
		fmt.Sprintf("several rows can make %s, since %s: the last change wins, and deleting one row removes it", what,
			reason), do)
}

// telling returns the columns that tell apart what the action writes for two rows: those of the key, and of the field
// or member. A filter that blurs leaves nothing to tell by.
func telling(a *router.Action) (columns []string) {
	for _, t := range []*router.Template{a.Key, a.Field} {
		if t == nil {
			continue
		}
		for i := range t.Parts {
			n := &t.Parts[i]
			blurs := slices.ContainsFunc(n.Filters, func(f router.Filter) bool { return f.Blurs() })
			if n.Kind == router.NodeColumn && !blurs && !slices.Contains(columns, n.Lit) {
				columns = append(columns, n.Lit)
			}
		}
	}
	return columns
}

// within reports whether all columns of an index are among others.
func within(index, columns []string) bool {
	for _, c := range index {
		if !slices.ContainsFunc(columns, func(o string) bool { return strings.EqualFold(o, c) }) {
			return false
		}
	}
	return true
}

// Remarks returns what can be said of the mappings without their tables: a query without a parameter gives each of the
// keys that rows make the same value. It may be called from any goroutine.
func Remarks(r *router.Router) []Finding {
	k := &checker{}
	for _, q := range r.Queries() {
		m := r.Mappings()[q.Mapping]
		many := slices.ContainsFunc(m.Actions, func(a router.Action) bool {
			return a.Kind == event.ActionRebuild && len(a.Key.Columns()) > 0
		})
		if many && len(q.Query.Params) == 0 {
			k.findings = append(k.findings, Finding{
				Pos: q.Rebuild.Query.At(0), Table: m.Spec.Table.Value,
				What: "the query has no parameter: whichever row changes, its key is given the same value",
				Do:   "write :column for what it should find, or a key without a column",
			})
		}
	}
	return k.sorted()
}
