package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr/vm"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/query"
)

// Options are what New can do without.
type Options struct {
	// Reporter gets the trouble that Route notices. Nil: it is only counted.
	Reporter Reporter
	// Registerer takes the metrics. Nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Tracer takes a report of what Route does. Nil, except for explanations.
	Tracer Tracer
}

// Router routes row changes to keys. See the package comment for who may call what.
type Router struct {
	specs    []spec.Mapping
	mappings []*Mapping
	// cased matches names as they are written, folded without letter case.
	cased, folded names

	report  Reporter
	machine vm.VM
	row     rowKeys
	once    once
	fill    scratch
	trace   Tracer
	plans   plans
	// last is the plan of the table of the last row: rows of one table come in runs.
	last *plan
}

type tableName struct{ schema, table string }

// names are the patterns of all mappings.
type names struct {
	// exact are the tables that mappings name without a wildcard; loose are the other mappings' patterns.
	exact map[tableName]struct{}
	loose []*pattern
	// schemas are the patterns of schemas.
	schemas []glob
}

func (n *names) add(p *pattern) {
	n.schemas = append(n.schemas, p.schema)
	if name, ok := p.exact(); ok {
		n.exact[name] = struct{}{}
	} else {
		n.loose = append(n.loose, p)
	}
}

// want reports whether any mapping matches the table, or, without a table, any may match one of the schema.
func (n *names) want(schema, table string) bool {
	if table == "" {
		return slices.ContainsFunc(n.schemas, func(g glob) bool { return g.match(schema) })
	}
	if _, ok := n.exact[tableName{schema, table}]; ok {
		return true
	}
	for _, p := range n.loose {
		if p.match(schema, table) {
			return true
		}
	}
	return false
}

// Mapping is a parsed Mapping.
type Mapping struct {
	Spec    *spec.Mapping
	Ordinal int
	pattern pattern
	// folded is the pattern for names in lower case.
	folded pattern
	// Events holds for each event.Op whether the mapping is for it.
	Events [4]bool
	// Actions are in the order in which a row's invalidations are carried. Writes: one of them writes what the row
	// holds. counts: the last one is an incr.
	Actions        []Action
	Writes, counts bool
	// predicate is nil without a `when`.
	predicate *predicate
	d         time.Duration
	meters    *counters
}

// New parses the mappings. Its error is [spec.Problems]: everything that is wrong with any of them.
func New(specs []spec.Mapping, o Options) (*Router, error) {
	m := newMetrics()
	r := &Router{
		specs: slices.Clone(specs), report: o.Reporter, trace: o.Tracer,
		cased: names{exact: map[tableName]struct{}{}}, folded: names{exact: map[tableName]struct{}{}}, plans: newPlans(),
	}
	var problems spec.Collector
	for i := range r.specs {
		parsed := parseMapping(&r.specs[i], &problems)
		parsed.Ordinal = i
		parsed.meters = m.counters(i, r.specs[i].Table.Value, parsed.more())
		r.mappings = append(r.mappings, parsed)
		r.cased.add(&parsed.pattern)
		r.folded.add(&parsed.folded)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if err := m.register(o.Registerer); err != nil {
		return nil, fmt.Errorf("router metrics: %w", err)
	}
	return r, nil
}

// more reports whether the mapping does more than delete keys.
func (m *Mapping) more() bool {
	return slices.ContainsFunc(m.Actions, func(a Action) bool { return a.Effect != nil })
}

func parseMapping(as *spec.Mapping, problems *spec.Collector) *Mapping {
	m := &Mapping{Spec: as, d: as.SecondDelete}
	e := as.Events
	if e == (spec.Events{}) {
		e = spec.Events{Insert: true, Update: true, Delete: true}
	}
	m.Events = [4]bool{event.Insert: e.Insert, event.Update: e.Update, event.Delete: e.Delete}
	var fs []fault
	m.pattern, fs = parsePattern(as.Table.Value)
	faults(problems, "table", &as.Table, fs)
	m.folded = m.pattern.folded()
	p := &mappingParser{problems, m}
	p.actions()
	p.scope()
	for i := range as.Columns {
		name := &as.Columns[i]
		switch same := func(o spec.Text) bool { return strings.EqualFold(o.Value, name.Value) }; {
		case strings.TrimSpace(name.Value) == "":
			problems.Add(name.Pos, "columns: a name is empty", "write a column's name")
		case slices.ContainsFunc(as.Columns[:i], same):
			problems.Add(name.Pos, "columns: "+spec.Quote(name.Value)+" comes twice", "remove one")
		}
	}
	if strings.TrimSpace(as.When.Value) != "" {
		m.predicate, fs = parsePredicate(as.When)
		faults(problems, "when", &as.When, fs)
	}
	return m
}

// Wants reports whether any mapping matches the table, by its name alone; without a table, whether any may match one of
// the schema. Names compare byte by byte. It may be called from any goroutine.
func (r *Router) Wants(schema, table string) bool { return r.cased.want(schema, table) }

// WantsFolded is Wants for a source that compares names without letter case.
func (r *Router) WantsFolded(schema, table string) bool {
	return r.folded.want(strings.ToLower(schema), strings.ToLower(table))
}

// Uses reports whether any mapping uses a column of a table, of which only the name counts: it names the column, or
// makes a value of the whole row. It may be called from any goroutine.
func (r *Router) Uses(t *event.Table, column string) bool {
	is := func(name string) bool { return strings.EqualFold(name, column) }
	return slices.ContainsFunc(r.mappings, func(m *Mapping) bool {
		return m.Matches(t) && (m.wholeRow() || slices.ContainsFunc(m.Columns(), is))
	})
}

// wholeRow reports whether the mapping makes a value of all columns.
func (m *Mapping) wholeRow() bool {
	return slices.ContainsFunc(m.Actions, func(a Action) bool {
		r := a.rebuild
		return r != nil && r.spec.FromRow && r.spec.As != event.FormString && len(r.columns) == 0
	})
}

// Matches reports whether the mapping is for the table. A table without a name stands for any of its schema.
func (m *Mapping) Matches(t *event.Table) bool {
	if t.FoldNames {
		return m.folded.match(strings.ToLower(t.Schema), strings.ToLower(t.Name))
	}
	return m.pattern.match(t.Schema, t.Name)
}

// Query is the query of one mapping, as its runner needs it.
type Query struct {
	// Query is the parsed text; its ID is what invalidations refer to ([event.Effect].Query).
	Query *query.Query
	// Schema is where tables without one are looked up; "" where the mapping's pattern leaves it open.
	Schema string
	// Mapping is the ordinal of the mapping, and Rebuild the action.
	Mapping int
	Rebuild *spec.Rebuild
}

// Queries returns the queries of all mappings. It may be called from any goroutine.
func (r *Router) Queries() []Query {
	var all []Query
	for _, m := range r.mappings {
		// All keys of a mapping share the rebuild.
		if b := m.Actions[0].rebuild; b != nil && b.query != nil {
			schema, _ := m.pattern.schema.exact()
			all = append(all, Query{Query: b.query, Schema: schema, Mapping: m.Ordinal, Rebuild: b.spec})
		}
	}
	return all
}

// Misfit is what keeps a mapping from working with a table. Table is nil where no table matches the mapping, which
// Mapping is then.
type Misfit struct {
	Table   *event.Table
	Mapping *Mapping
	spec.Problem
}

// Error names the table, if there is one.
func (m Misfit) Error() string {
	if m.Table == nil {
		return m.Problem.Error()
	}
	return fmt.Sprintf("table %s: %s", m.Table, m.Problem)
}

// Unfit returns what keeps mappings from working with these tables, which are all that they are for.
func (r *Router) Unfit(tables []*event.Table) (all []Misfit) {
	all = r.missing(tables)
	for _, t := range tables {
		_, err := r.Bind(t)
		var problems spec.Problems
		if errors.As(err, &problems) {
			for _, p := range problems {
				all = append(all, Misfit{Table: t, Problem: p})
			}
		}
	}
	return all
}

// missing returns a problem for each mapping that matches none of the tables, in the order of their places.
func (r *Router) missing(tables []*event.Table) (all []Misfit) {
	var names []string
	advice := "create it, grant SELECT on it, or remove the mapping; names are case-sensitive"
	for _, t := range tables {
		names = append(names, t.String())
		if t.FoldNames {
			advice = "create it, grant SELECT on it, or remove the mapping"
		}
	}
	for _, m := range r.mappings {
		if !slices.ContainsFunc(tables, m.Matches) {
			all = append(all, Misfit{Mapping: m, Problem: spec.Problem{
				Pos: m.Spec.Table.Pos, What: m.Unmatched(), Do: spec.Suggest(m.Spec.Table.Value, names, advice),
			}})
		}
	}
	slices.SortStableFunc(all, func(a, b Misfit) int { return a.Pos.Compare(b.Pos) })
	// An alias in the configuration stands for the same place.
	return slices.CompactFunc(all, func(a, b Misfit) bool { return a.Problem == b.Problem })
}

// Unmatched is what is wrong where no table matches the mapping.
func (m *Mapping) Unmatched() string { return "no table matches " + spec.Quote(m.Spec.Table.Value) }
