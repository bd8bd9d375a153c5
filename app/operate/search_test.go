package operate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/proof/testbed"
)

// searched is a configuration with a hash whose fields must be looked for.
func searched(t *testing.T, source, server, mapping string) *config.Config {
	t.Helper()
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["`+source+`"], user: root}
redis: {addresses: ["`+server+`"], username: some, timeout: 10s}
mappings: [{table: shop.product, `+mapping+`}]
`), CheckMappings)
	testbed.Must(t, err)
	c.Redis.Password = config.NewSecret("secret")
	return c
}

// Who may only delete has no doubt answered. That works in all else, so it is a warning.
func TestCheckSaysThatKeysCannotBeLookedFor(t *testing.T) {
	server, none := testbed.Redis(t), testbed.Redis(t, "--rename-command", "SCAN", "")
	for _, s := range []*testbed.RedisServer{server, none} {
		s.Do(t, "acl", "setuser", "some", "on", ">secret", "~*", "+@all")
	}
	keys, fields := `keys: ["product:{id}"]`, `hash: {key: stock, field: "{id}"}`
	for _, x := range []struct {
		server         *testbed.RedisServer
		rights, mapped string
		says           string
	}{
		{server, "-scan", keys, "user some may not run scan: keys cannot be looked for, so doubts are not answered"},
		{server, "-hscan", fields, "user some may not run hscan: keys cannot be looked for"},
		{server, "-hscan", keys, ""},
		{server, "-dbsize", keys, ""},
		{none, "+scan", keys, "has no command scan: keys cannot be looked for"},
	} {
		x.server.Do(t, "acl", "setuser", "some", "+@all", x.rights)
		c := searched(t, "127.0.0.1:1", x.server.Addr, x.mapped)
		if warned := found(t, c, Warn); !strings.Contains(warned, x.says) ||
			x.says == "" && strings.Contains(warned, "looked for") {
			t.Errorf("%s, %s: %q, want %q", x.rights, x.mapped, warned, x.says)
		}
		if bad := found(t, c, Fail); bad != "" {
			t.Errorf("%s, %s: %s", x.rights, x.mapped, bad)
		}
	}
}

// A pass over Redis asks again until it is answered. What is refused will be refused again.
func TestADryRunEndsWhereRedisLetsNobodyLook(t *testing.T) {
	source, server := testbed.MariaDB(t), testbed.Redis(t)
	none := testbed.Redis(t, "--rename-command", "SCAN", "")
	source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.product (id INT PRIMARY KEY)")
	keys, fields := `keys: ["product:{id}"]`, `hash: {key: stock, field: "{id}"}`
	for _, x := range []struct {
		server         *testbed.RedisServer
		rights, mapped string
		says           string
	}{
		{server, "-scan", keys, "+scan"},
		{server, "-hscan", fields, "+hscan"},
		{none, "+@all", keys, "unknown command"},
		{server, "-hscan", keys, ""},
		{server, "-dbsize", keys, ""},
		{server, "-info", keys, ""},
	} {
		for _, s := range []*testbed.RedisServer{server, none} {
			s.Do(t, "acl", "setuser", "some", "on", ">secret", "~product:*", "~stock", "+@all")
		}
		x.server.Do(t, "acl", "setuser", "some", x.rights)
		x.server.Do(t, "hset", "stock", "1", "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := DryRun(ctx, searched(t, source.Addr, x.server.Addr, x.mapped), admin.Scope{All: true}, &scope.Progress{})
		switch {
		case ctx.Err() != nil:
			t.Errorf("%s, %s: it does not end: %v", x.rights, x.mapped, err)
		case x.says == "" && err != nil, x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)):
			t.Errorf("%s, %s: %v, want %q", x.rights, x.mapped, err, x.says)
		}
		cancel()
	}
}
