package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/credential"
)

// validate reports values that do not go together.
func (l *loader) validate() {
	c := l.config
	l.validateSource()
	l.validateRedis()
	l.validateQueries()
	if c.EventLog.Dir == "" {
		l.wrong("eventlog.dir", "is empty", "write a directory, or remove the key for the default")
	}
	if c.EventLog.Kind == EventLogKafka {
		l.validateKafka()
	} else if l.given("eventlog.kafka.brokers") {
		l.wrong("eventlog.kafka.brokers", "has no effect with kind embedded",
			"write kind: kafka below eventlog, or remove it")
	}
	l.validateRetry()
	l.validateAdmin()
	l.validateTLS("source.tls", c.Source.TLS)
	l.validateTLS("redis.tls", c.Redis.TLS)
	l.validateTLS("eventlog.kafka.tls", c.EventLog.Kafka.TLS)
	l.validateServerTLS("admin.tls", c.Admin.TLS)
}

// wrong reports a key's value, unless something was said about it already.
func (l *loader) wrong(path, what, do string) {
	if !l.bad[path] {
		l.at(l.place(path), path, &fault{what, do})
	}
}

// without reports those of the keys that are given and have no effect.
func (l *loader) without(effect string, do string, paths ...string) {
	for _, path := range paths {
		if l.given(path) {
			l.wrong(path, "has no effect "+effect, do)
		}
	}
}

func (l *loader) validateSource() {
	s := l.config.Source
	if s.Start.Kind == StartFile && len(s.Addresses) > 1 {
		l.wrong("source.start", "a position by file is one of one server only, and source.addresses names several",
			"write gtid:SET, or leave one address")
	}
	if s.Start.Kind != StartGTID {
		return
	}
	if s.Flavor == FlavorMySQL && !isMySQLSet(s.Start.GTIDs) || s.Flavor == FlavorMariaDB && !isMariaDBSet(s.Start.GTIDs) {
		l.wrong("source.start", "the GTID set is not of the flavor "+string(s.Flavor),
			"write a set of that server, or flavor: auto")
	}
}

func (l *loader) validateRedis() {
	r := l.config.Redis
	if r.Mode == RedisSingle && len(r.Addresses) > 1 {
		l.at(l.item("redis.addresses", 1), "redis.addresses", &fault{"mode single has one server", "leave one address"})
	}
	if r.Mode != RedisSentinel {
		l.without("with mode "+string(r.Mode), "remove it", "redis.master_name", "redis.sentinel_username",
			"redis.sentinel_password", "redis.sentinel_password_file", "redis.sentinel_password_command")
	} else if r.MasterName == "" {
		l.wrong("redis.master_name", "is missing", "write the sentinels' name for the master")
	}
	if r.Mode == RedisCluster && r.DB != 0 {
		l.wrong("redis.db", "a cluster has database 0 only", "remove it")
	}
	if !wholeTag(r.KeyPrefix) {
		l.wrong("redis.key_prefix", spec.Quote(r.KeyPrefix)+" has braces that are not one hash tag",
			"write one with something in it, such as {shop}:, or no braces")
	}
}

// wholeTag reports whether a prefix of keys has no braces, or those of one hash tag. Half a tag would be ended by what
// is in a key, and move the key to a slot that its companions (its version, its lock) cannot be put in beforehand.
func wholeTag(prefix string) bool {
	before, rest, tagged := strings.Cut(prefix, "{")
	tag, after, ended := strings.Cut(rest, "}")
	if !tagged {
		return !strings.Contains(prefix, "}")
	}
	return ended && tag != "" && !strings.ContainsAny(before+tag+after, "{}")
}

// validateQueries reports queries without a server to run on. With Kafka a file without source is an invalidator's,
// and the action travels with each key, except queries: the invalidators run those.
func (l *loader) validateQueries() {
	if l.config.EventLog.Kind != EventLogKafka || l.has("source") {
		return
	}
	for _, m := range l.config.Mappings {
		if r := m.Rebuild; r != nil && !r.FromRow {
			l.at(r.Query.Pos, "rebuild.query",
				&fault{
					"it runs on the source, and the file has none",
					"write source: with addresses and user, in the files of invalidators too",
				})
		}
	}
}

func (l *loader) validateKafka() {
	k := l.config.EventLog.Kafka
	if len(k.Brokers) == 0 {
		l.wrong("eventlog.kafka.brokers", "is missing", "write the brokers' addresses, host:port")
	}
	l.validateSASL(k)
}

func (l *loader) validateSASL(k Kafka) {
	const sasl = "eventlog.kafka.sasl."
	passwords := []string{sasl + "username", sasl + "password", sasl + "password_file", sasl + "password_command"}
	tokens := []string{sasl + "token", sasl + "token_file", sasl + "token_command"}
	switch k.SASL.Mechanism {
	case "none":
		l.without("with mechanism none", "write a mechanism, or remove it", append(passwords, tokens...)...)
	case "oauthbearer":
		l.without("with mechanism oauthbearer, which takes a token", "remove it", passwords...)
		if !l.givenAny(tokens) {
			l.wrong(sasl+"token", "is missing", "write token_file or token_command, or another mechanism")
		}
		if k.TLS.Shows(k.Brokers) {
			l.wrong(sasl+"mechanism", "oauthbearer sends the token itself, which anybody on the way could use",
				"write mode: verify below eventlog.kafka.tls")
		}
	default:
		l.without("with mechanism "+k.SASL.Mechanism+", which takes a password", "write mechanism: oauthbearer, or remove it",
			tokens...)
		if k.SASL.Username == "" {
			l.wrong(sasl+"username", "is missing", "write it, or mechanism: none")
		}
		if !l.givenAny(passwords[1:]) {
			l.wrong(sasl+"password", "is missing", "write it or password_file, or mechanism: none")
		}
	}
}

// givenAny reports whether one of the keys is given.
func (l *loader) givenAny(paths []string) bool { return slices.ContainsFunc(paths, l.given) }

func (l *loader) validateRetry() {
	r := l.config.Retry
	if r.ParkAfter > r.MaxAttempts {
		l.wrong("retry.park_after", fmt.Sprintf("%d is more than max_attempts, which is %d", r.ParkAfter, r.MaxAttempts),
			"lower it, or raise max_attempts")
	}
	if len(r.ParkDelays) == 0 {
		l.wrong("retry.park_delays", "is empty", "write at least one, such as 10s")
	}
	if r.MinBackoff > r.MaxBackoff {
		l.wrong("retry.min_backoff",
			fmt.Sprintf("%s is more than max_backoff, which is %s", shortDuration(r.MinBackoff), shortDuration(r.MaxBackoff)),
			"lower it, or raise max_backoff")
	}
}

func (l *loader) validateAdmin() {
	a := l.config.Admin
	if a.Listen != "" && !loopback(a.Listen) && a.Token.IsZero() && !l.given("admin.token_file") {
		l.wrong("admin.listen", spec.Quote(a.Listen)+" is not on loopback, and there is no token",
			"set admin.token or token_file, or listen on 127.0.0.1")
	}
	if a.Listen != "" && a.Listen == a.MetricsListen {
		l.wrong("admin.metrics_listen", "is the address of admin.listen, which has /metrics already",
			"write another address, or none")
	}
}

// validateTLS checks a section for connections to servers.
func (l *loader) validateTLS(section string, t TLS) {
	ca, cert, key, name := section+".ca_file", section+".cert_file", section+".key_file", section+".server_name"
	switch {
	case l.bad[section+".mode"]:
		return
	case t.Mode == TLSDisabled:
		l.without("with mode disabled", "write mode: verify, or remove it", ca, cert, key, name)
		return
	case t.Mode != TLSVerify:
		l.without("with mode "+string(t.Mode)+", which does not look at the server's certificate",
			"write mode: verify, or remove it", ca, name)
	case t.CAFile != "":
		l.checkAuthorities(ca, t.CAFile)
	}
	l.checkCertificate(cert, key, t.CertFile, t.KeyFile)
}

// validateServerTLS checks a section for listeners.
func (l *loader) validateServerTLS(section string, t ServerTLS) {
	ca, cert, key := section+".client_ca_file", section+".cert_file", section+".key_file"
	switch {
	case l.bad[section+".mode"]:
		return
	case t.Mode == TLSDisabled:
		l.without("with mode disabled", "write mode: required, or remove it", ca, cert, key)
		return
	case t.CertFile == "" && t.KeyFile == "":
		l.wrong(cert, "is missing", "write cert_file and key_file, or mode: disabled")
	}
	if t.ClientCAFile != "" {
		l.checkAuthorities(ca, t.ClientCAFile)
	}
	l.checkCertificate(cert, key, t.CertFile, t.KeyFile)
}

func (l *loader) checkAuthorities(path, file string) {
	if _, err := authorities(file); err != nil {
		l.wrong(path, spec.Quote(file)+": "+err.Error(), "name a readable PEM file with the certificates of the authorities")
	}
}

// checkCertificate checks that a certificate and its key are there and fit together, if one of them is named.
func (l *loader) checkCertificate(certPath, keyPath, cert, key string) {
	switch {
	case cert == "" && key == "":
		return
	case key == "":
		l.wrong(keyPath, "is missing", "name the file of the certificate's key")
		return
	case cert == "":
		l.wrong(certPath, "is missing", "name the file of the key's certificate")
		return
	}
	readable := true
	for _, f := range []struct{ path, file string }{{certPath, cert}, {keyPath, key}} {
		if _, err := os.ReadFile(f.file); err != nil {
			l.wrong(f.path, spec.Quote(f.file)+": "+credential.Cause(err).Error(), "name a readable PEM file")
			readable = false
		}
	}
	if !readable {
		return
	}
	path, file := certPath, cert
	_, ofKey, err := readPair(cert, key)
	if ofKey {
		path, file = keyPath, key
	}
	if err != nil {
		l.wrong(path, spec.Quote(file)+": "+err.Error(), "name a PEM certificate and the key that belongs to it")
	}
}
