package operate

import (
	"fmt"

	"github.com/freshet/freshet/config"
)

// checkSecrets warns of passwords that a protocol shows to anybody on the way. MySQL's does not: what would show a
// password there is refused at the login, and so is a token for Kafka.
func checkSecrets(c *config.Config, r *Report) {
	warn := func(what, section string, t config.TLS, instead string) {
		r.add(Warn, fmt.Sprintf("%s, and %s.mode is %s: anybody on the way to the server can read it, or answer instead", what,
			section, t.Mode), "set "+section+".mode to verify"+instead)
	}
	if c.HasRedis() && c.Redis.TLS.Shows(c.Redis.Addresses) {
		switch {
		case !c.Redis.Password.IsZero():
			warn("redis: AUTH sends the password itself", "redis.tls", c.Redis.TLS, "")
		case !c.Redis.SentinelPassword.IsZero():
			warn("redis: AUTH sends the sentinels' password itself", "redis.tls", c.Redis.TLS, "")
		}
	}
	k := c.EventLog.Kafka
	if c.EventLog.Kind == config.EventLogKafka && k.SASL.Mechanism == "plain" && k.TLS.Shows(k.Brokers) {
		warn("kafka: PLAIN sends the password itself", "eventlog.kafka.tls", k.TLS, ", or use scram-sha-512")
	}
}
