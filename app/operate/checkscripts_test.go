package operate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

var everyAction = []event.Action{
	event.ActionDelete, event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionZSet, event.ActionExpire,
	event.ActionIncr,
}

func TestCheckNamesTheOneCommandThatIsMissing(t *testing.T) {
	server := testbed.Redis(t)
	// As docs/actions.md has it.
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~freshet:*", "+@read", "+@write", "+evalsha", "+script|load",
		"+time", "+publish")
	rdb := server.NewClient(&redis.Options{Username: "some", Password: "secret"})
	commands := commandsOf(&config.Config{}, everyAction)
	if missing, _ := missingCommands(t.Context(), rdb, commands, ""); len(missing) > 0 {
		t.Errorf("nothing is missing, but %v are", missing)
	}
	trials := trials("k")
	for _, c := range commands {
		if trials[c] == nil {
			t.Errorf("%s is not tried", c)
		}
		server.Do(t, "acl", "setuser", "some", "-"+c)
		if missing, _ := missingCommands(t.Context(), rdb, commands, ""); !slices.Equal(missing, []string{c}) {
			t.Errorf("without %s, missing are %v", c, missing)
		}
		server.Do(t, "acl", "setuser", "some", "+"+c)
	}
	server.Do(t, "flushall") // without UNLINK one key stayed
	missingCommands(t.Context(), rdb, commands, "")
	if left := server.Client().Keys(t.Context(), "*").Val(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCheckOfAUserWithTheRightsOfTheDocumentation(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~freshet:*", "+@read", "+@write", "+evalsha", "+script|load",
		"+time")
	key := func(s string) spec.Text { return spec.Text{Value: s} }
	c := &config.Config{Mappings: []spec.Mapping{{
		Table: key("shop.product"), Keys: []spec.Text{key("freshets")}, Rebuild: &spec.Rebuild{FromRow: true},
		Hash: &spec.Hash{Key: key("freshets"), Field: key("f")}, Publish: &spec.Publish{Channel: key("c"), Message: key("m")},
	}}}
	c.Redis.Addresses, c.Redis.Username, c.Redis.Timeout = []string{server.Addr}, "some", 10*time.Second
	c.Redis.Password = config.NewSecret("secret")
	told := func() string {
		var r Report
		checkRedis(t.Context(), c, nil, &r)
		var b strings.Builder
		for _, f := range r.Findings {
			if f.Grade == Fail {
				b.WriteString(f.What + ": " + f.Fix)
			}
		}
		return b.String()
	}
	if text := told(); !strings.HasSuffix(text, "ACL SETUSER some +publish") {
		t.Errorf("without publish: %q", text)
	}
	server.Do(t, "acl", "setuser", "some", "+publish")
	if text := told(); text != "" {
		t.Errorf("with all that is needed, but PING: %s", text)
	}
	c.Redis.DB = 1
	if text := told(); !strings.HasSuffix(text, "ACL SETUSER some +ping +info +select +unlink +scan +dbsize ~*") {
		t.Errorf("without SELECT: %q", text)
	}
}

// Scripts go on without a command that Redis does not know, by deleting what they cannot write, so nothing fails.
func TestCheckNamesACommandThatNobodyMayRun(t *testing.T) {
	server := testbed.Redis(t, "--rename-command", "SADD", "")
	key := func(s string) spec.Text { return spec.Text{Value: s} }
	c := &config.Config{Mappings: []spec.Mapping{{
		Table: key("shop.product"), Set: &spec.Set{Key: key("products"), Member: key("m")},
	}}}
	c.Redis.Addresses, c.Redis.Timeout = []string{server.Addr}, 10*time.Second
	says(t, found(t, c, Fail), "redis "+server.Addr+" does not know sadd, in scripts neither", "(rename-command)")
	c.Mappings = nil // of an invalidator, which may not need it
	says(t, found(t, c, Warn), "redis "+server.Addr+" does not know sadd, in scripts neither")
}
