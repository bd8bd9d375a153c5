package operate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/proof/testbed"
)

// Each right that the mappings need is missed by its name, and by nothing else.
func TestCheckNamesTheRuleThatIsMissing(t *testing.T) {
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: freshet}
redis: {addresses: ["127.0.0.1:1"], username: some, key_prefix: "s:"}
mappings:
  - table: shop.product
    keys: ["product:{id}", "sku:{sku|hex}:x"]
    publish: {channel: "changed:{id}", message: "{id}"}
    stream: {key: changes, maxlen: 10}
  - table: shop.user
    keys: ["user:{id}"]
    rebuild: {from: row}
    hash: {key: "profile:{id}", field: name}
    incr: "gen:{id}"
`), CheckMappings)
	if err != nil {
		t.Fatal(err)
	}
	server := testbed.Redis(t)
	server.Do(t, "set", "s:user:17", "mine")
	rules := []string{
		"~s:product:*", "~s:sku:*:x", "&changed:*", "~s:changes", "~s:user:*", "~s:profile:*", "~s:gen:*",
		"~s:freshet:*",
	}
	for missing := range len(rules) + 1 {
		args := []any{"acl", "setuser", "some", "reset", "on", ">secret", "+@all"}
		want := ""
		for i, rule := range rules {
			if i == missing {
				want = "ACL SETUSER some " + rule
				continue
			}
			args = append(args, rule)
		}
		server.Do(t, args...)
		if got := fixes(t, server, c, Fail); got != want {
			t.Errorf("without rule %d: %q, want %q", missing, got, want)
		}
	}
	// One that may write, but not read, may delete, and run no scripts.
	server.Do(t, "acl", "setuser", "some", "resetkeys", "%W~s:*")
	if got, want := fixes(t, server, c, Fail),
		"ACL SETUSER some ~s:user:*; ACL SETUSER some ~s:freshet:*; ACL SETUSER some ~s:gen:*"; got != want {
		t.Errorf("without reading: %q, want %q", got, want)
	}
	server.Do(t, "acl", "setuser", "some", "allkeys", "allchannels", "-multi")
	if got, want := fixes(t, server, c, Warn), "ACL SETUSER some +multi +discard"; got != want {
		t.Errorf("without MULTI: %q, want %q", got, want)
	}
	server.Do(t, "acl", "setuser", "some", "+multi", "-hdel", "-publish")
	if got := fixes(t, server, c, Fail); got != "" {
		t.Errorf("a command that is missing is told of as if it were a rule: %q", got)
	}
	if left := server.Client().Keys(t.Context(), "*").Val(); len(left) != 1 || left[0] != "s:user:17" {
		t.Errorf("asking has changed the keys: they are %q", left)
	}
}

// A user who may touch nothing but the mappings' keys is enough for one who only deletes.
func TestCheckOfAUserWhoMayTouchTheMappingsKeysAlone(t *testing.T) {
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: freshet}
redis: {addresses: ["127.0.0.1:1"], username: some}
mappings: [{table: shop.product, keys: ["product:{id}"]}]
`), CheckMappings)
	if err != nil {
		t.Fatal(err)
	}
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~product:*", "+ping", "+info", "+unlink", "+multi",
		"+discard")
	c.Redis.Addresses, c.Redis.Password, c.Redis.Timeout = []string{server.Addr}, config.NewSecret("secret"),
		10*time.Second
	var r Report
	checkRedis(t.Context(), c, nil, &r)
	if r.Failed() {
		t.Errorf("%+v", r.Findings)
	}
	c.Redis.WaitReplicas = 1
	for _, fix := range []string{"ACL SETUSER some +wait,", "ACL SETUSER some +set ~freshet:*,"} {
		r = Report{}
		checkRedis(t.Context(), c, nil, &r)
		if !slices.ContainsFunc(r.Findings, func(f Found) bool { return f.Grade == Fail && strings.HasPrefix(f.Fix, fix) }) {
			t.Errorf("replicas are waited for: no finding says %q: %+v", fix, r.Findings)
		}
		server.Do(t, "acl", "setuser", "some", "+wait", "+set")
	}
	c.Redis.WaitReplicas = 0
	c.Mappings = nil
	r = Report{}
	checkRedis(t.Context(), c, nil, &r)
	if !r.Failed() {
		t.Error("without mappings nobody knows whether it is enough")
	}
}

// fixes returns what to do about the findings of the grade.
func fixes(t *testing.T, server *testbed.RedisServer, c *config.Config, g Grade) string {
	t.Helper()
	rdb := server.NewClient(&redis.Options{Username: "some", Password: "secret", MaxRetries: -1})
	var r Report
	checkKeys(t.Context(), c, &r, rdb, server.Addr)
	var all []string
	for _, f := range r.Findings {
		if f.Grade == g {
			all = append(all, f.Fix)
		}
	}
	return strings.Join(all, "; ")
}
