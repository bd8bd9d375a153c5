package operate

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/proof/testbed"
)

func TestCheckSaysWhatARestartOfRedisBringsBack(t *testing.T) {
	server := testbed.Redis(t)
	check := func(user string) string {
		c := &config.Config{}
		c.Redis.Addresses, c.Redis.Username = []string{server.Addr}, user
		if user != "" {
			c.Redis.Password = config.NewSecret("p")
		}
		var r Report
		checkRedis(t.Context(), c, nil, &r)
		var text strings.Builder
		for _, f := range r.Findings {
			text.WriteString(f.What + "\n")
		}
		return text.String()
	}
	if s := check(""); strings.Contains(s, "a restart brings back") {
		t.Errorf("without persistence: %s", s)
	}
	server.Do(t, "config", "set", "save", "3600 1")
	if s := check(""); !strings.Contains(s, `saves snapshots (save "3600 1")`) {
		t.Errorf("with snapshots: %s", s)
	}
	server.Do(t, "acl", "setuser", "managed", "on", ">p", "~*", "+@all", "-config")
	if s := check("managed"); strings.Contains(s, "a restart brings back") || !strings.Contains(s, "takes UNLINK") {
		t.Errorf("where CONFIG is refused: %s", s)
	}
	server.Do(t, "config", "set", "appendonly", "yes")
	if s := check("managed"); !strings.Contains(s, "append-only file") {
		t.Errorf("with a log: %s", s)
	}
}

// With each event log a stamp says how old the data is that Redis comes back with.
func TestCheckFindsAUserWhoMayNotWriteTheStamp(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "unstamped", "on", ">p", "~"+probeKey+"*", "+@all")
	for _, kind := range []config.EventLogKind{config.EventLogEmbedded, config.EventLogKafka} {
		c := &config.Config{}
		c.EventLog.Kind = kind
		c.Redis.Addresses, c.Redis.Username, c.Redis.Password = []string{server.Addr}, "unstamped", config.NewSecret("p")
		var r Report
		checkRedis(t.Context(), c, nil, &r)
		if !slices.ContainsFunc(r.Findings, func(f Found) bool {
			return strings.Contains(f.What, "refuses the key "+identity.StampKey) &&
				f.Fix == "ACL SETUSER unstamped +get +set +eval +evalsha ~freshet:*"
		}) {
			t.Errorf("%s: %+v", kind, r.Findings)
		}
	}
}

// Scripts that write values ask Redis for its time, and so does freshet.
func TestCheckFindsAUserWhoMayNotAskForTheTime(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "timeless", "on", ">p", "~*", "+@all", "-time")
	c := &config.Config{}
	c.Redis.Addresses, c.Redis.Username, c.Redis.Password = []string{server.Addr}, "timeless", config.NewSecret("p")
	var r Report
	checkRedis(t.Context(), c, nil, &r)
	for _, f := range r.Findings {
		if strings.Contains(f.What, "user timeless may not run time") && f.Fix == "ACL SETUSER timeless +time" {
			return
		}
	}
	t.Errorf("%+v", r.Findings)
}

// Where a service runs Redis the commands of operators are unknown, and how a finding is fixed is said in its words.
func TestCheckSpeaksTheWordsOfAService(t *testing.T) {
	server := testbed.Redis(t, "--maxmemory", "100mb", "--rename-command", "CONFIG", "")
	server.Do(t, "acl", "setuser", "some", "on", ">p", "~*", "+@all", "-time")
	c := &config.Config{}
	c.Redis.Addresses, c.Redis.Username, c.Redis.Password = []string{server.Addr}, "some", config.NewSecret("p")
	var r Report
	checkRedis(t.Context(), c, nil, &r)
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"nobody may run CONFIG there", "add to the access string of user some: +time",
		"set maxmemory-policy to allkeys-lru in the parameter group",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("want %q in %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "ACL SETUSER") || strings.Contains(text.String(), "CONFIG SET") {
		t.Errorf("what nobody may run: %s", text.String())
	}
}

// An Active-Active database is known by a command of its own. Here, one with that name stands in for it.
func TestCheckRefusesAnActiveActiveDatabase(t *testing.T) {
	server := testbed.Redis(t, "--rename-command", "DEBUG", "crdt.debug")
	c := &config.Config{}
	c.Redis.Addresses = []string{server.Addr}
	var r Report
	checkRedis(t.Context(), c, nil, &r)
	for _, f := range r.Findings {
		if f.Grade == Fail && strings.Contains(f.What, "Active-Active") {
			return
		}
	}
	t.Errorf("%+v", r.Findings)
}

// What is wrong is not always the address, or a right.
func TestCheckSaysWhatToDoAboutARedisThatRefuses(t *testing.T) {
	full := testbed.Redis(t, "--maxmemory", "1kb")
	wants := testbed.Redis(t, "--requirepass", "secret")
	l, err := net.Listen("tcp", "127.0.0.1:0") // as a server with TLS does
	testbed.Must(t, err)
	var closing sync.WaitGroup
	closing.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 100))
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		closing.Wait()
	})
	for _, x := range []struct {
		addr  string
		grade Grade
		more  func(*config.Config)
		says  string
	}{
		{full.Addr, Warn, func(*config.Config) {}, "could not be tried: OOM command not allowed"},
		{full.Addr, Warn, func(*config.Config) {}, " -> Redis is at its maxmemory and evicts nothing: see maxmemory-policy"},
		{full.Addr, Fail, func(c *config.Config) { c.Redis.DB = 99 }, " -> correct redis.db"},
		{wants.Addr, Fail, func(*config.Config) {}, " -> set redis.password"},
		{
			wants.Addr, Fail, func(c *config.Config) { c.Redis.Password = config.NewSecret("guessed") },
			" -> correct redis.username and redis.password",
		},
		{l.Addr().String(), Fail, func(*config.Config) {}, "set redis.tls.mode"},
	} {
		c := rebuilding(t, x.addr)
		x.more(c)
		if text := found(t, c, x.grade); !strings.Contains(text, x.says) {
			t.Errorf("want %q: %s", x.says, text)
		}
	}
	if text := found(t, rebuilding(t, full.Addr), Fail); text != "" {
		t.Errorf("freshet can run on a full redis, and check fails: %s", text)
	}
}

// rebuilding is a configuration that writes values.
func rebuilding(t *testing.T, addr string) *config.Config {
	t.Helper()
	c, err := config.Parse("freshet.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: freshet}
redis: {addresses: ["`+addr+`"], timeout: 10s}
mappings:
  - {table: shop.product, keys: ["product:{id}"], rebuild: {from: row}, incr: "gen:{id}"}
  - {table: shop.tag, set: {key: "tags:{id}", member: "{id}"}}
`), CheckMappings)
	testbed.Must(t, err)
	return c
}
