package operate

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/config"
)

func TestAPasswordThatIsShownOnTheWayIsWarnedOf(t *testing.T) {
	far, near := []string{"127.0.0.1:1", "server:1"}, []string{"127.0.0.1:1", "[::1]:1", "localhost:1"}
	secret := config.NewSecret("hunter2")
	kafka := func(mechanism string, at []string, mode config.TLSMode) func(*config.Config) {
		return func(c *config.Config) {
			c.EventLog.Kind, c.EventLog.Kafka.Brokers = config.EventLogKafka, at
			c.EventLog.Kafka.SASL = config.SASL{Mechanism: mechanism, Username: "u", Password: secret}
			c.EventLog.Kafka.TLS.Mode = mode
		}
	}
	redis := func(of *config.Redis, at []string, mode config.TLSMode) func(*config.Config) {
		return func(c *config.Config) {
			c.Redis = *of
			c.Redis.Addresses, c.Redis.TLS.Mode = at, mode
		}
	}
	own, sentinels := &config.Redis{Password: secret}, &config.Redis{SentinelPassword: secret}
	for name, x := range map[string]struct {
		set  func(*config.Config)
		want string
	}{
		"nothing":                 {func(*config.Config) {}, ""},
		"plain":                   {kafka("plain", far, config.TLSDisabled), "set eventlog.kafka.tls.mode to verify, or use scram"},
		"plain, required":         {kafka("plain", far, config.TLSRequired), "mode is required"},
		"plain, verified":         {kafka("plain", far, config.TLSVerify), ""},
		"plain, on this machine":  {kafka("plain", near, config.TLSDisabled), ""},
		"scram":                   {kafka("scram-sha-512", far, config.TLSDisabled), ""},
		"redis":                   {redis(own, far, config.TLSDisabled), "set redis.tls.mode to verify"},
		"redis, verified":         {redis(own, far, config.TLSVerify), ""},
		"redis, on this machine":  {redis(own, near, config.TLSDisabled), ""},
		"redis without password":  {redis(&config.Redis{}, far, config.TLSDisabled), ""},
		"password of sentinels":   {redis(sentinels, far, config.TLSDisabled), "the sentinels' password"},
		"brokers without a login": {kafka("none", far, config.TLSDisabled), ""},
	} {
		var c config.Config
		x.set(&c)
		var r Report
		checkSecrets(&c, &r)
		var out strings.Builder
		if err := r.Print(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), x.want) || (x.want == "") != (len(r.Findings) == 0) || r.Failed() ||
			strings.Contains(out.String(), "hunter2") {
			t.Errorf("%s: %s, want %q", name, out.String(), x.want)
		}
	}
}
