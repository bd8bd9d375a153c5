package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/credential"
)

// samples are a value for each key that is not its default, as a variable has it.
func samples(dir string) map[string]string {
	s := map[string]string{
		"source.name": "orders", "source.addresses": "db-1:3306, db-2:3307", "source.user": "reader",
		"source.password": "0123",
		"source.flavor":   "mariadb", "source.server_id": "4294967295", "source.start": "gtid:0-1-5,1-1-7",
		"source.fill_from":    "r-1:3306",
		"source.fill_timeout": "1m", "source.fill_lag": "5s", "source.heartbeat": "250ms",
		"redis.mode": "sentinel", "redis.addresses": "s-1:26379,s-2:26379,[::1]:26379", "redis.master_name": "main",
		"redis.username": "freshet",
		"redis.password": "a,b", "redis.sentinel_username": "watcher",
		"redis.sentinel_password": "s e c", "redis.db": "3", "redis.key_prefix": "shop:",
		"redis.timeout":       "1m",
		"redis.wait_replicas": "1", "redis.failover_window": "30s",
		"on_gap": "invalidate", "on_first_start": "invalidate", "on_cascade": "ignore", "scope_rate": "500",
		"eventlog.kind": "kafka", "eventlog.dir": "/var/lib/freshet",
		"eventlog.kafka.brokers": "k-1:9092,k-2:9092", "eventlog.kafka.topic": "shop.invalidations",
		"eventlog.kafka.partitions":         "24",
		"eventlog.kafka.replication_factor": "3", "eventlog.kafka.create_topics": "false", "eventlog.kafka.group": "eu",
		"eventlog.kafka.compression": "none", "eventlog.kafka.sasl.mechanism": "scram-sha-512",
		"eventlog.kafka.sasl.username": "freshet",
		"eventlog.kafka.sasl.password": "007", "eventlog.kafka.sasl.token": "eyJ",
		"invalidator.second_delete": "none", "invalidator.max_in_flight": "1000", "invalidator.max_pending": "2000",
		"invalidator.max_memory": "1GiB",
		"invalidator.rate_limit": "50000",
		"retry.max_attempts":     "5", "retry.park_after": "2", "retry.park_delays": "1s,1s,2m", "retry.min_backoff": "1ms",
		"retry.max_backoff": "1m",
		"admin.listen":      "none", "admin.metrics_listen": ":9090", "admin.token": "1e3", "admin.tls.mode": "required",
		"admin.tls.client_ca_file": "ca",
		"log.level":                "debug", "log.format": "json",
	}
	for _, section := range []string{"source.tls", "redis.tls", "eventlog.kafka.tls"} {
		s[section+".mode"], s[section+".ca_file"], s[section+".server_name"] = "verify", "ca.pem", "db.example"
	}
	for _, section := range []string{"source.tls", "redis.tls", "eventlog.kafka.tls", "admin.tls"} {
		s[section+".cert_file"], s[section+".key_file"] = "cert.pem", "key.pem"
	}
	for _, k := range keys() {
		if k.secret != nil {
			s[k.path+"_file"], s[k.path+"_command"] = filepath.Join(dir, k.path), "vault read "+k.path
		}
	}
	return s
}

func TestEveryKeyCanComeFromTheEnvironment(t *testing.T) {
	samples := samples(t.TempDir())
	for _, k := range keys() {
		t.Run(k.path, func(t *testing.T) {
			text, ok := samples[k.path]
			if !ok || !k.required && slices.Equal([]string{text}, k.def) {
				t.Fatal("samples has nothing for it")
			}
			if want := "FRESHET_" + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_")); k.env() != want {
				t.Fatalf("variable %s, want %s", k.env(), want)
			}
			t.Setenv("FRESHET_EVENTLOG_KIND", "kafka")
			t.Setenv(k.env(), text)
			c, err := parseAnyway(t, minimal)
			if err != nil && strings.Contains(err.Error(), "there is no such key") {
				t.Error(err)
			}
			if want := strings.Split(strings.ReplaceAll(text, ", ", ","), ","); k.list && !slices.Equal(k.get(c), want) {
				t.Errorf("read as %q, want %q", k.get(c), want)
			}
			if !k.list && k.secret == nil && k.get(c)[0] != text {
				t.Errorf("read as %q, want %q", k.get(c)[0], text)
			}
			if k.secret != nil && !revealed(c, text) {
				t.Errorf("no secret of the configuration is %q", text)
			}
			if got := c.origin(k.path); got != "$"+k.env() {
				t.Errorf("it comes from %s", got)
			}
		})
	}
}

// revealed reports whether one of the secrets is the text.
func revealed(c *Config, text string) bool {
	var walk func(v reflect.Value) bool
	walk = func(v reflect.Value) bool {
		if s, ok := v.Interface().(Secret); ok {
			return s.Reveal() == text
		}
		if v.Kind() != reflect.Struct {
			return false
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && walk(v.Field(i)) {
				return true
			}
		}
		return false
	}
	return walk(reflect.ValueOf(*c))
}

func TestNoTwoKeysShareAVariable(t *testing.T) {
	seen := map[string]string{configVariable: "--config"}
	for _, k := range keys() {
		if other, ok := seen[k.env()]; ok {
			t.Errorf("%s is the variable of %s and of %s", k.env(), k.path, other)
		}
		seen[k.env()] = k.path
	}
}

func TestTheEnvironmentGoesOverTheFileAndTheFileOverTheDefault(t *testing.T) {
	text := strings.Replace(minimal, "user: freshet", "user: freshet\n  heartbeat: 3s", 1)
	if got := mustParse(t, text); got.Source.Heartbeat.String() != "3s" || got.origin("source.heartbeat") != "line 4" {
		t.Errorf("from the file: %v, %s", got.Source.Heartbeat, got.origin("source.heartbeat"))
	}
	t.Setenv("FRESHET_SOURCE_HEARTBEAT", "")
	if got := mustParse(t, text); got.Source.Heartbeat.String() != "3s" {
		t.Errorf("an empty variable counts: %v", got.Source.Heartbeat)
	}
	t.Setenv("FRESHET_SOURCE_HEARTBEAT", "4s")
	if got := mustParse(t, text); got.Source.Heartbeat.String() != "4s" {
		t.Errorf("from the environment: %v", got.Source.Heartbeat)
	}
	// The next load knows nothing of this one.
	if err := os.Unsetenv("FRESHET_SOURCE_HEARTBEAT"); err != nil {
		t.Fatal(err)
	}
	if got := mustParse(t, minimal); got.Source.Heartbeat.String() != "1s" || got.origin("source.heartbeat") != "default" {
		t.Errorf("the default: %v, %s", got.Source.Heartbeat, got.origin("source.heartbeat"))
	}
}

func TestRequiredKeysMayComeFromTheEnvironment(t *testing.T) {
	t.Setenv("FRESHET_SOURCE_ADDRESSES", "db:3306")
	t.Setenv("FRESHET_SOURCE_USER", "freshet")
	t.Setenv("FRESHET_REDIS_ADDRESSES", "cache:6379")
	c := mustParse(t, "mappings:\n  - table: a.b\n    keys: [x]\n")
	if got := fmt.Sprint(c.Source.Addresses, c.Source.User, c.Redis.Addresses); got != "[db:3306]freshet[cache:6379]" {
		t.Error(got)
	}
}

// A variable named like a section is somebody else's. It is told of, and hides none of the section's keys.
func TestAVariableOfASectionHidesNothing(t *testing.T) {
	t.Setenv("FRESHET_LOG", "x")
	c, err := parseAnyway(t, minimal+"log: {level: debug}\n")
	if err == nil || c.Log.Level.String() != "DEBUG" {
		t.Errorf("level %v, problems: %v", c.Log.Level, err)
	}
}

// A secret to log in with is not kept: each login reads it.
func TestASecretToLogInWithIsReadAtEachLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for key, value := range map[string]string{"password_file": file, "password_command": "cat " + file} {
		if err := os.WriteFile(file, []byte("first\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := mustParse(t, strings.Replace(minimal, "user: freshet", "user: freshet\n  "+key+": "+value, 1))
		for _, want := range []string{"first", "second"} {
			if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Source.Password.Source().Read(t.Context()); got != want || err != nil {
				t.Errorf("%s: %q, %v; want %q", key, got, err, want)
			}
		}
		if got := c.Source.Password.Reveal(); got != "" {
			t.Errorf("%s: %q is kept", key, got)
		}
		text := c.String()
		if strings.Contains(text, "password:") && strings.Contains(text, "source.password:") ||
			!strings.Contains(text, key+": "+value+" # line 4") {
			t.Errorf("printed as\n%s", text)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		_, err := c.Source.Password.Source().Read(t.Context())
		if !credential.IsUnread(err) || !strings.HasPrefix(err.Error(), "source."+key+": ") {
			t.Errorf("%s: without the file: %v", key, err)
		}
	}
}

func TestSecretsComeFromFiles(t *testing.T) {
	for content, want := range map[string]string{
		"s3cret": "s3cret", "s3cret\n": "s3cret", "s3cret\r\n": "s3cret", "s3cret\n\n": "s3cret\n", " s3 cret ": " s3 cret ",
	} {
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c := mustParse(t, minimal+"admin: {token_file: "+file+"}\n")
		if got := c.Admin.Token.Reveal(); got != want {
			t.Errorf("%q is read as %q, want %q", content, got, want)
		}
		if text := c.String(); strings.Contains(text, "token:") || !strings.Contains(text, "token_file: "+file+" # line 9") {
			t.Errorf("printed as\n%s", text)
		}
	}
}

func TestAFileWithoutASecretIsAProblem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{
		"": "is empty", "\n": "is empty", strings.Repeat("x", credential.MaxSize+1): "is larger than 64KiB",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Parse("freshet.yaml", []byte(minimal+"admin: {token_file: "+file+"}\n"))
		if err == nil || !strings.Contains(err.Error(), "freshet.yaml:9:21: admin.token_file: "+file+": "+want) {
			t.Errorf("%.10q: %v", content, err)
		}
	}
}

// The password of one place and the file of another are still two, since nobody can say which was meant.
func TestASecretIsGivenOnce(t *testing.T) {
	t.Setenv("FRESHET_SOURCE_PASSWORD", "hunter2")
	_, err := Parse("freshet.yaml",
		[]byte(strings.Replace(minimal, "user: freshet", "user: freshet\n  password_file: /nowhere", 1)))
	want := "freshet.yaml:4:18: source.password_file: source.password is given as well ($FRESHET_SOURCE_PASSWORD): keep " +
		"one of them"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
