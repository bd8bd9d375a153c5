package config

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
)

func TestTheEffectiveConfigurationSaysWhereValuesComeFrom(t *testing.T) {
	t.Setenv("FRESHET_LOG_LEVEL", "debug")
	text := mustParse(t, strings.Replace(minimal, "user: freshet", "user: \"0123\"\n  password: hunter2", 1)).String()
	for _, want := range []string{
		"# The effective configuration of freshet.yaml.\nsource:\n  name: default # default\n  addresses: ['127.0.0.1:3306'] # line 2\n",
		"  user: \"0123\" # line 3\n  password: '******' # line 4\n",
		"  heartbeat: 1s # default\n  tls:\n    mode: disabled # default\n",
		"on_gap: halt # default\non_first_start: keep # default\n",
		"  max_memory: 32MiB # default\n  rate_limit: none # default\n",
		"  park_delays: [10s, 1m, 10m] # default\n",
		"log:\n  level: debug # $FRESHET_LOG_LEVEL\n",
		"mappings:\n  - table: shop.product\n    events: [insert, update, delete]\n    keys:\n      - product:{id}\n    second_delete: 2s\n    rate_limit: none\n    scope: keys\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks\n%s\nin\n%s", want, text)
		}
	}
	if strings.Contains(text, "kafka:") {
		t.Error("keys are shown that do not count")
	}
}

func TestTheEffectiveConfigurationLoadsAgain(t *testing.T) {
	file := minimal + `  - table: shop.order_{00..63}
    events: [delete, insert]
    columns: [name, "yes", "0123"]
    when: "row.status == 'it''s' && row.n > 0 # no comment"
    keys: ["{{order}}:{id}", 'a: b', "- x", "null", "größe\t\"{id}\""]
    second_delete: none
    rate_limit: 70
    scope: {id: '[^:{}"]+', "yes": ".", "<<": "null"}
source:
`
	file = strings.Replace(file, "source:\n  addresses",
		"source: &s\n  server_id: 7\n  start: binlog.000001:4\n  name: \"1e3\"\n  addresses", 1)
	file = strings.TrimSuffix(file, "source:\n") + `retry: {park_delays: [1500ms, 1h30m], max_backoff: 1m0s}
invalidator: {max_memory: 1536KiB, rate_limit: 1000}
admin: {metrics_listen: ":9090", listen: none}
eventlog: {dir: "null"}
`
	first := mustParse(t, file)
	second := mustParse(t, first.String())
	if d := cmp.Diff(first, second, sameSecret, cmpopts.IgnoreUnexported(Config{}),
		cmpopts.IgnoreTypes(spec.Pos{}, []spec.Run{})); d != "" {
		t.Error(d)
	}
	if first.MappingsHash() != second.MappingsHash() {
		t.Error("the hash is another one")
	}
	other, err := yaml.Marshal(first)
	if err != nil || mustParse(t, string(other)).MappingsHash() != first.MappingsHash() {
		t.Errorf("yaml.Marshal: %v\n%s", err, other)
	}
}

func TestActionsArePrintedAsTheyCount(t *testing.T) {
	c := mustParse(t, acting)
	text := c.String()
	for _, want := range []string{
		"    rebuild:\n      from: row\n      as: json\n      columns: [id, user_name as userName]\n      decimals: number\n      expire_at: 5m\n      ttl: 1h\n      jitter: 10%\n      missing:\n        cache: '-'\n        ttl: 30s\n",
		"    hash:\n      key: users\n      field: '{id}'\n      value: '{name}'\n    set:\n      key: names\n      member: '{name}'\n",
		"    zset:\n      key: board\n      member: '{id}'\n      score: '{points}'\n",
		"    expire:\n      keys:\n        - a:{id}\n        - b:{id}\n      in: 5s\n    incr: users:gen\n    publish:\n      channel: changed\n      message: '{id}'\n    stream:\n      key: changes\n      maxlen: 500\n",
		"    rebuild:\n      query: SELECT 1\n      server: source\n      timeout: 2s\n      rows: many\n      as: json\n      decimals: string\n      ttl: none\n    second_delete: 2s\n",
		"    rebuild:\n      from: row\n      as: string\n      value: '{name}'\n      ttl: none\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks\n%s\nin\n%s", want, text)
		}
	}
	again := mustParse(t, text)
	if d := cmp.Diff(c.Mappings, again.Mappings, cmpopts.IgnoreTypes(spec.Pos{}, []spec.Run{})); d != "" {
		t.Error(d)
	}
}

func TestALoggedConfigurationIsItsFileAndHash(t *testing.T) {
	c := mustParse(t, minimal)
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("configuration loaded", "config", c)
	if want := "config.file=freshet.yaml config.mappings=1 config.mappings_hash=" + c.MappingsHash() +
		"\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("%s, want %s", b.String(), want)
	}
}
