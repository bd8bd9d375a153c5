package connect

import (
	"slices"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/invalidator/rebuild"
	"github.com/freshet/freshet/router"
)

// Rebuilder makes what runs the queries of the mappings; nil when there are none.
func Rebuilder(c *config.Config, more func(*rebuild.Options)) (*rebuild.Runner, error) {
	queried := func(m spec.Mapping) bool { return m.Rebuild != nil && m.Rebuild.Query.Value != "" }
	if !c.HasSource() || !slices.ContainsFunc(c.Mappings, queried) {
		return nil, nil // most have none, and need not be compiled for it
	}
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return nil, err
	}
	var queries []rebuild.Query
	for _, q := range route.Queries() {
		m := &c.Mappings[q.Mapping]
		queries = append(queries, rebuild.Query{
			Query: *q.Query, Schema: q.Schema, As: q.Rebuild.As, Many: q.Rebuild.Rows == spec.RowsMany,
			DecimalNumbers: q.Rebuild.Decimals == spec.DecimalsNumber,
			ExpireAt:       m.Rebuild.ExpireAt, Timeout: m.Rebuild.Timeout, Mapping: q.Mapping, Table: m.Table.Value,
			Where: m.Rebuild.Query.Pos.String(),
		})
	}
	at := Source(c)
	o := rebuild.Options{
		Source: at.Source, Address: at.Address, User: at.User, Password: at.Password,
		TLS: at.TLS, TLSOptional: at.TLSOptional, Queries: queries,
	}
	more(&o)
	return rebuild.New(o)
}
