package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
)

// Walk says which rows are walked, and what for.
type Walk struct {
	Schema, Name string
	// Where is SQL that a row must meet, as an operator wrote it; "": all rows.
	Where string
	// Forget says that the keys of the rows are forgotten. Else the mappings do what they do with an inserted row.
	Forget bool
	// Only says which mappings are meant, by their place; nil: all of the table.
	Only func(ordinal int) bool
}

// WalkRouter returns what routes the rows of a walk.
//
// A walk says what a row is, not that it has changed: so `events` and `columns` do not count, and nobody is notified. A
// warm-up raises no counter either, since nothing is stale. To forget, `when` does not count: who knows why the key of
// a row is there. The pace is that of the walk.
func WalkRouter(all []spec.Mapping, w *Walk, report router.Reporter) (*router.Router, error) {
	var specs []spec.Mapping
	var ordinals []int
	for i, m := range all {
		if w.Only != nil && !w.Only(i) {
			continue
		}
		m.Events, m.Columns, m.Publish, m.Stream, m.RateLimit, m.Scope = spec.Events{}, nil, nil, nil, 0, nil
		if w.Forget {
			m.When = spec.Text{}
		} else {
			m.Incr = spec.Text{}
		}
		if len(m.Keys) > 0 || m.Hash != nil || m.Set != nil || m.ZSet != nil || m.Expire != nil || m.Incr.Value != "" {
			specs, ordinals = append(specs, m), append(ordinals, i)
		}
	}
	route, err := router.New(specs, router.Options{Reporter: report})
	if err != nil {
		return nil, err
	}
	for i, m := range route.Mappings() {
		m.Ordinal = ordinals[i]
	}
	return route, nil
}

// WalkedMappings returns the mappings by which rows of the source of a configuration are routed: its own, or with Kafka
// those that the reader of this source has kept. What is missing is [admin.NotHere].
func WalkedMappings(ctx context.Context, c *config.Config, facts doubt.Facts) ([]spec.Mapping, error) {
	kafka := c.EventLog.Kind == config.EventLogKafka
	switch {
	case !c.HasSource() && kafka:
		return nil, admin.NotHere("this process has no source, so it cannot read rows: write source, as the reader's file has " +
			"it, into the files of all invalidators of the group")
	case !c.HasSource():
		return nil, admin.NotHere("this process has no source, so it cannot read rows")
	case !kafka:
		return c.Mappings, nil
	}
	specs, err := keptMappings(ctx, facts, c.Source.Name)
	if errors.Is(err, errNotKept) {
		err = admin.NotHere(err.Error() + "; source.name must be the one that the reader's file has")
	}
	return specs, err
}

// TryWalk asks the source whether a table can be walked, and what it says of the condition. What it refuses is
// [admin.Unfit].
func TryWalk(ctx context.Context, c *config.Config, mappings []spec.Mapping, w *Walk) error {
	t, _, err := openWalk(c, mappings, w)
	if err == nil {
		err = t.Try(ctx)
	}
	var never walk.Refusal
	if errors.As(err, &never) || walk.Refused(err) {
		return unfit("%v", err)
	}
	return err
}

// openWalk returns a walk for a question about it, and what routes its rows.
func openWalk(c *config.Config, mappings []spec.Mapping, w *Walk) (*walk.Walk, *router.Router, error) {
	o := connect.Source(c)
	route, err := WalkRouter(mappings, w, nil)
	if err != nil {
		return nil, nil, err
	}
	return walk.New(walk.Options{
		Schema: w.Schema, Table: w.Name, Where: w.Where, Bind: route.Bind,
		Connect: func(ctx context.Context) (walk.Conn, func(), error) {
			conn, _, closes, err := canal.Session(ctx, o)
			return conn, closes, err
		},
	}, walk.Place{}), route, nil
}

// dryRows is how many rows a chunk of a dry run has, and dryBytes about how large they are together at most.
const (
	dryRows  = 1000
	dryBytes = 4 << 20
)

// DryWalk looks which keys the rows of a table make that meet a condition, to write or to forget them, and does nothing
// with them. Of one that several rows make it counts each. p says how far it is.
func DryWalk(ctx context.Context, c *config.Config, name, where string, forget bool, p *scope.Progress,
) (*Cached, error) {
	mappings, err := askMappings(ctx, c)
	if err != nil {
		return nil, err
	}
	w, err := WalkOf(mappings, name, where)
	if err != nil {
		return nil, err
	}
	w.Forget = forget
	if err := TryWalk(ctx, c, mappings, w); err != nil {
		return nil, err
	}
	rows, route, err := openWalk(c, mappings, w)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	p.Keys.Store(rows.About(ctx))
	found := &Cached{Keys: map[string]int{}}
	var b event.Batch
	for {
		got, err := rows.Chunk(ctx, walk.Size{Rows: dryRows, Bytes: dryBytes}, func(t *event.Table, v []event.Value) error {
			route.Route(&b, &event.Change{Table: t, Tx: &event.Tx{}, After: v, Op: event.Insert})
			p.Found.Add(int64(b.Len()))
			found.count(&b)
			b.Reset()
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("rows are read: %w", err)
		}
		p.Looked.Add(int64(got.Passed))
		if got.Last {
			return found, nil
		}
	}
}

// WalkOf checks which rows an operator means: the table is one of a mapping's.
func WalkOf(mappings []spec.Mapping, name, where string) (*Walk, error) {
	route, err := router.New(mappings, router.Options{})
	if err != nil {
		return nil, err
	}
	chosen := chooser{mappings: route.Mappings()}
	if _, err := chosen.tables([]string{name}); err != nil {
		return nil, err
	}
	schema, table, _ := router.ParseTable(name)
	return &Walk{Schema: schema, Name: table, Where: where}, nil
}

// askMappings returns the mappings of a walk without a freshet that runs.
func askMappings(ctx context.Context, c *config.Config) (mappings []spec.Mapping, err error) {
	if c.EventLog.Kind != config.EventLogKafka || !c.HasSource() {
		return WalkedMappings(ctx, c, nil)
	}
	kept, err := OpenDoubts(ctx, c)
	if err != nil {
		return nil, err
	}
	mappings, err = WalkedMappings(ctx, c, kept.Facts())
	return mappings, errors.Join(err, kept.Close())
}

// Warms refuses a walk that has nothing to do: a table whose mappings only raise counters. It also refuses what
// [Queried] does.
func Warms(c *config.Config, mappings []spec.Mapping, w *Walk) error {
	route, err := WalkRouter(mappings, w, nil)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(route.Mappings(), func(m *router.Mapping) bool { return m.Matches(table(w.Schema, w.Name)) }) {
		return unfit("the mappings of %s.%s only raise counters: there is nothing to write", w.Schema, w.Name)
	}
	return Queried(c, route, w)
}

// Queried refuses a walk of which a process cannot write all values: those that are rebuilt by a query come from one of
// its own file, and an invalidator's file may have no mappings. What is missing is [admin.NotHere].
func Queried(c *config.Config, route *router.Router, w *Walk) error {
	of := table(w.Schema, w.Name)
	asked := slices.DeleteFunc(route.Queries(), func(q router.Query) bool {
		return !slices.ContainsFunc(route.Mappings(), func(m *router.Mapping) bool {
			return m.Ordinal == q.Mapping && m.Matches(of)
		})
	})
	if len(asked) == 0 {
		return nil
	}
	own, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return err
	}
	for _, q := range asked {
		if !slices.ContainsFunc(own.Queries(), func(o router.Query) bool { return o.Query.ID == q.Query.ID }) {
			return admin.NotHere(fmt.Sprintf("a mapping of %s.%s rebuilds by a query that the file of this process does not have: "+
				"write mappings, as the reader's file has them, into the files of all invalidators of the group", w.Schema, w.Name))
		}
	}
	return nil
}
