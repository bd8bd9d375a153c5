package operate

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// lookedAt returns what check says of what is cached.
func lookedAt(t *testing.T, server *testbed.RedisServer, c *config.Config) string {
	t.Helper()
	c.Redis.Addresses = []string{server.Addr}
	tables := []*event.Table{defined("shop", "product", "int"), defined("shop", "review", "int")}
	var r Report
	checkRedis(t.Context(), c, tables, &r)
	var text strings.Builder
	for _, f := range r.Findings {
		if strings.Contains(f.What, "looked at") || strings.Contains(f.What, " keys of ") ||
			strings.Contains(f.What, "a value of") || strings.Contains(f.What, "no keys yet") {
			fmt.Fprintln(&text, f.Grade, f.What)
		}
	}
	return text.String()
}

func TestCheckLooksAtWhatIsCached(t *testing.T) {
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: freshet}
redis: {addresses: ["127.0.0.1:1"], key_prefix: "s:"}
mappings:
  - table: shop.product
    keys: ["product:{id}", "prodcut:{id}"]
  - table: shop.review
    set: {key: "reviews:{id}", member: "{id}"}
`), CheckMappings)
	if err != nil {
		t.Fatal(err)
	}
	server := testbed.Redis(t)
	if got, want := lookedAt(t, server, c), "ok redis has no keys yet\n"; got != want {
		t.Errorf("nothing is cached: %q, want %q", got, want)
	}
	rdb := server.Client()
	_, err = rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 1000 {
			p.Set(t.Context(), fmt.Sprintf("s:product:%d", i), "v", time.Hour)
			p.Set(t.Context(), fmt.Sprintf("s:product:%d:x", i), "another's", 0)
		}
		p.SAdd(t.Context(), "s:reviews:1", "1")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	none := `warn looked at all 2001 keys in redis, and none is of "prodcut:{id}" (freshet.yaml:6:29)` + "\n"
	if got, want := lookedAt(t, server, c), none+"ok looked at all 2001 keys in redis: 1001 are of the mappings\n"; got != want {
		t.Errorf("a template has a typing error: %q, want %q", got, want)
	}

	members := make([]any, longValue+1)
	for i := range members {
		members[i] = i
	}
	server.Do(t, "del", "s:reviews:1")
	for i := range 1000 { // of the 200 that are asked about, some have no TTL
		if i%3 == 0 {
			server.Do(t, "persist", fmt.Sprintf("s:product:%d", i))
		}
	}
	rdb.SAdd(t.Context(), "s:reviews:1", members...)
	rdb.Set(t.Context(), "s:prodcut:5", strings.Repeat("x", largeValue+1), time.Hour)
	got := lookedAt(t, server, c)
	for _, want := range []string{
		fmt.Sprintf("of %d keys of \"product:{id}\" (freshet.yaml:6:13) have no TTL", askedKeys),
		`warn a value of "prodcut:{id}" (freshet.yaml:6:29) has 1048577 bytes: "s:prodcut:5"`,
		`warn a value of "reviews:{id}" (freshet.yaml:8:17) has 10001 members: "s:reviews:1"`,
		"ok looked at all 2002 keys in redis: 1002 are of the mappings",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
	}
	if strings.Contains(got, "keys of \"reviews") {
		t.Errorf("a set is freshet's own, and need not expire: %q", got)
	}

	server.Do(t, "debug", "populate", "30000", "other")
	if got = lookedAt(t, server, c); !regexp.MustCompile(`looked at 2\d{4} of about 32002 keys`).MatchString(got) {
		t.Errorf("of many keys some are looked at: %q", got)
	}
	c.Redis.Username, c.Redis.Password = "few", config.NewSecret("p")
	server.Do(t, "acl", "setuser", "few", "on", ">p", "~*", "+ping", "+info", "+unlink", "+dbsize", "+scan")
	if got = lookedAt(t, server, c); !strings.Contains(got, "ok what is cached was not looked at: NOPERM") {
		t.Errorf("without the rights: %q", got)
	}
}

// oneTemplate is a configuration with one key.
func oneTemplate(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: freshet}
redis: {addresses: ["127.0.0.1:1"]}
mappings: [{table: shop.product, keys: ["product:{id}"]}]
`), CheckMappings)
	testbed.Must(t, err)
	return c
}

// The first places that SCAN comes to are empty where an answer to a doubt has ended early.
func TestCheckLooksAtKeysWhereTheFirstOnesAreGone(t *testing.T) {
	c := oneTemplate(t)
	server := testbed.Redis(t)
	server.Do(t, "debug", "populate", "600000", "product")
	rdb := server.Client()
	for cursor, left := uint64(0), int64(600_000); left > 200_000; {
		page, next, err := rdb.Scan(t.Context(), cursor, "", 2000).Result()
		testbed.Must(t, err)
		testbed.Must(t, rdb.Unlink(t.Context(), page...).Err())
		cursor, left = next, rdb.DBSize(t.Context()).Val()
	}
	got := lookedAt(t, server, c)
	if strings.Contains(got, "none is of") || !strings.Contains(got, "have no TTL") {
		t.Errorf("%s", got)
	}
	// How many it comes to in its time depends on the machine.
	if !regexp.MustCompile(`ok looked at [1-9]\d+ of about \d+ keys in redis: \d+ are of the mappings`).MatchString(got) {
		t.Errorf("%s", got)
	}
}

// Of what Redis does not say, check says nothing: not that a template has no keys.
func TestCheckSaysThatItCouldNotLook(t *testing.T) {
	c := oneTemplate(t)
	server := testbed.Redis(t, "--rename-command", "SCAN", "")
	server.Do(t, "set", "product:1", "v", "ex", "3600")
	want := "ok what is cached was not looked at: ERR unknown command"
	if got := lookedAt(t, server, c); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("where nobody may run SCAN: %q, want %q", got, want)
	}
}

// A key can hold any bytes: those that a terminal obeys, and lines that look like findings.
func TestCheckQuotesTheKeysThatItNames(t *testing.T) {
	c := oneTemplate(t)
	s := newSample(c, []*event.Table{defined("shop", "product", "varchar(40)")})
	var r Report
	for _, of := range s.of {
		of.keys, of.asked = 1, 1
		of.large, of.long = sized{"product:\x1b[2J\nok", largeValue + 1}, sized{"product:\x1b[2J\nok", longValue + 1}
		of.report("the template", "all", &r)
	}
	if len(r.Findings) != 2 {
		t.Errorf("not two large values: %+v", r.Findings)
	}
	for _, f := range r.Findings {
		if !strings.HasSuffix(f.What, `: "product:\x1b[2J\nok"`) {
			t.Errorf("a key as it is: %q", f.What)
		}
	}
}
