package connect

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/invalidator/rebuild"
	"github.com/freshet/freshet/router"
)

// Rebuilder makes what runs the queries of the mappings, on the one of the servers that is read; nil when there are
// none.
func Rebuilder(c *config.Config, servers *canal.Servers, more func(*rebuild.Options),
) (*rebuild.Runner, error) {
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
			Server: replica(m.Rebuild.Server.Value), Where: m.Rebuild.Query.Pos.String(),
		})
	}
	at := Source(c)
	at.Servers = servers
	o := rebuild.Options{
		Source: at.Source, Address: strings.Join(servers.All(), ", "), User: at.User, Password: at.Password,
		TLS: onCurrent(servers, at.TLS), TLSOptional: at.TLSOptional, ReplicaTLS: at.TLS, Queries: queries,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			address, err := canal.Address(ctx, at)
			if err != nil {
				return nil, err
			}
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				servers.Lost()
			}
			return c, err
		},
	}
	more(&o)
	return rebuild.New(o)
}

// onCurrent are TLS settings that verify the host of the server that is read, where they name no other.
func onCurrent(servers *canal.Servers, settings credential.TLS) credential.TLS {
	if settings == nil {
		return nil
	}
	return func() (*tls.Config, error) {
		host, _, _ := net.SplitHostPort(servers.Current())
		return settings.For(host)()
	}
}

// replica is where a query runs, if that is not the source.
func replica(server string) string {
	if server == spec.OnSource {
		return ""
	}
	return server
}
