package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/rebuild"
	"github.com/freshet/freshet/router"
)

// newRebuilder makes what runs the queries of the mappings; nil when there are none.
func newRebuilder(c *config.Config, more func(*rebuild.Options)) (*rebuild.Runner, error) {
	queried := func(m config.Mapping) bool { return m.Rebuild != nil && m.Rebuild.Query.Value != "" }
	if !c.HasSource() || !slices.ContainsFunc(c.Mappings, queried) {
		return nil, nil // most have none, and need not be compiled for it
	}
	route, err := router.New(routerMappings(c.Mappings), router.Options{})
	if err != nil {
		return nil, err
	}
	var queries []rebuild.Query
	for _, q := range route.Queries() {
		m := &c.Mappings[q.Mapping]
		queries = append(queries, rebuild.Query{
			Query: *q.Query, Schema: q.Schema, As: q.Rebuild.As, Many: q.Rebuild.Many, DecimalNumbers: q.Rebuild.DecimalNumbers,
			ExpireAt: m.Rebuild.ExpireAt, Timeout: m.Rebuild.Timeout, Mapping: q.Mapping, Table: m.Table.Value, Where: m.Rebuild.Query.Pos.String(),
		})
	}
	at, err := sourceOptions(c)
	if err != nil {
		return nil, err
	}
	o := rebuild.Options{
		Source: at.Source, Address: at.Address, User: at.User, Password: at.Password,
		TLS: at.TLS, TLSOptional: at.TLSOptional, Queries: queries,
	}
	more(&o)
	return rebuild.New(o)
}

// checkQueries has the source prepare the queries of the mappings.
func checkQueries(ctx context.Context, c *config.Config, r *Report) {
	run, err := newRebuilder(c, func(*rebuild.Options) {})
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	if run == nil {
		return
	}
	defer run.Close()
	checked, err := run.Check(ctx)
	if err != nil {
		r.add(Fail, "the queries could not be tried: "+err.Error(), "")
		return
	}
	good := 0
	for _, q := range checked {
		m := &c.Mappings[q.Query.Mapping]
		if most := write.Window(m.SecondDelete); m.Rebuild.Timeout > most {
			r.add(Warn, fmt.Sprintf("%s: timeout %s is of no use: a query that takes longer than %s, second_delete and 5s, deletes its key in place of writing it",
				q.Query.Where, m.Rebuild.Timeout, most), fmt.Sprintf("write timeout: %s at most, or use a longer second_delete", most))
		}
		if q.Err != nil {
			r.add(Fail, q.Err.Error(), "")
			continue
		}
		good++
	}
	if good > 0 {
		r.add(OK, fmt.Sprintf("%d of %d queries can be run by %s", good, len(checked), c.Source.User), "")
	}
}
