package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/freshet/freshet/config/spec"
)

func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	want := &Config{
		File: "freshet.yaml",
		Source: Source{
			Name: "default", Addresses: []string{"127.0.0.1:3306"}, User: "freshet", Flavor: FlavorAuto,
			Start:       Start{Kind: StartNow},
			FillTimeout: 30 * time.Second, Heartbeat: time.Second, TLS: TLS{Mode: TLSDisabled},
		},
		Redis: Redis{
			Mode: RedisSingle, Addresses: []string{"127.0.0.1:6379"}, Timeout: time.Second, TLS: TLS{Mode: TLSDisabled},
		},
		OnGap: GapHalt, OnFirstStart: FirstStartKeep, OnCascade: CascadeInvalidate, ScopeRate: 2000,
		EventLog: EventLog{
			Kind: EventLogEmbedded, Dir: "./freshet-data",
			Kafka: Kafka{
				Topic: "freshet.invalidations", Partitions: 12, CreateTopics: true, Group: "freshet", Compression: "lz4",
				SASL: SASL{Mechanism: "none"}, TLS: TLS{Mode: TLSDisabled},
			},
		},
		Invalidator: Invalidator{
			SecondDelete: 2 * time.Second, MaxInFlight: 200_000, MaxPending: 4_000_000,
			MaxMemory: 32 << 20,
		},
		Retry: Retry{
			MaxAttempts: 8, ParkAfter: 3, ParkDelays: []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute},
			MinBackoff: 100 * time.Millisecond, MaxBackoff: 30 * time.Second,
		},
		Admin: Admin{Listen: "127.0.0.1:8686", TLS: ServerTLS{Mode: TLSDisabled}},
		Log:   Log{Level: slog.LevelInfo, Format: LogAuto},
		Mappings: []spec.Mapping{{
			Pos:          spec.At("freshet.yaml", 7, 5),
			Table:        spec.Text{Value: "shop.product", Pos: spec.At("freshet.yaml", 7, 12)},
			Events:       spec.Events{Insert: true, Update: true, Delete: true},
			Keys:         []spec.Text{{Value: "product:{id}", Pos: spec.At("freshet.yaml", 8, 13)}},
			SecondDelete: 2 * time.Second,
		}},
	}
	if d := cmp.Diff(want, mustParse(t, minimal), cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreTypes([]spec.Run{}),
		cmpopts.EquateEmpty(), sameSecret); d != "" {
		t.Error(d)
	}
}

func TestEveryDefaultIsReadAndWrittenAlike(t *testing.T) {
	for _, k := range keys() {
		c := &Config{}
		for _, f := range k.set(c, k.def) {
			if f != nil && !k.required {
				t.Errorf("%s: the default has a fault: %v", k.path, *f)
			}
		}
		if got := k.get(c); !slices.Equal(got, append([]string{}, k.def...)) {
			t.Errorf("%s: the default %q is written back as %q", k.path, k.def, got)
		}
	}
}

func TestAValueIsTheTextOfItsScalar(t *testing.T) {
	for text, want := range map[string]string{
		"0123": "0123", "0x1F": "0x1F", "1_000": "1_000", "1e3": "1e3", "yes": "yes", "true": "true",
		"2024-01-01": "2024-01-01",
		"1.10":       "1.10", "0o17": "0o17", `"null"`: "null", "'~'": "~", "!!str 0123": "0123", ".inf": ".inf",
		"12:30:45": "12:30:45",
		`"a\tb"`:   "a\tb", "|\n    x\n    y": "x\ny\n", "a.b.c": "a.b.c", "UPPER": "UPPER", `""`: "", "'  '": "  ",
	} {
		c := mustParse(t, strings.Replace(minimal, "user: freshet", "user: freshet\n  password: "+text, 1))
		if got := c.Source.Password.Reveal(); got != want {
			t.Errorf("password: %s is read as %q, want %q", text, got, want)
		}
	}
}

func TestKeysOfMappingsKeepCaseAndDots(t *testing.T) {
	c := mustParse(t, minimal+`  - table: Shop.Order.Line
    columns: [Unit.Price]
    keys: ["Order:{Id}"]
`)
	m := c.Mappings[1]
	if m.Table.Value != "Shop.Order.Line" || m.Columns[0].Value != "Unit.Price" || m.Keys[0].Value != "Order:{Id}" {
		t.Errorf("%+v", m)
	}
}

func TestNoneSwitchesOffWhatCanBe(t *testing.T) {
	c := mustParse(t, `source:
  addresses: ["127.0.0.1:3306"]
  user: freshet
  fill_lag: none
redis: {addresses: ["127.0.0.1:6379"]}
invalidator: {second_delete: none, rate_limit: none}
admin: {listen: none, metrics_listen: none}
mappings:
  - table: a.b
    keys: ["{id}"]
  - table: a.c
    keys: ["{id}"]
    second_delete: 1m30s
    rate_limit: none
`)
	if c.Source.FillLag != 0 || c.Invalidator.SecondDelete != 0 || c.Invalidator.RateLimit != 0 || c.Admin.Listen != "" ||
		c.Admin.MetricsListen != "" {
		t.Errorf("%+v %+v %+v", c.Source.FillLag, c.Invalidator, c.Admin)
	}
	if got := []time.Duration{c.Mappings[0].SecondDelete, c.Mappings[1].SecondDelete}; got[0] != 0 ||
		got[1] != 90*time.Second {
		t.Errorf("second deletes of the mappings: %v", got)
	}
	// Where none is a word of an enumeration, it stays one.
	if c.EventLog.Kafka.SASL.Mechanism != "none" {
		t.Errorf("mechanism %q", c.EventLog.Kafka.SASL.Mechanism)
	}
}

func TestMappingsAreReadWhole(t *testing.T) {
	c := mustParse(t, minimal+`  - table: shop.order_{00..63}
    events: [insert, delete]
    columns: [name, price]
    when: "row.status == 'live'"
    keys:
      - "{{order}}:{id}"
      - 'sku:{sku|lower}'
    second_delete: 500ms
`)
	want := spec.Mapping{
		Pos:    spec.At("freshet.yaml", 9, 5),
		Table:  spec.Text{Value: "shop.order_{00..63}", Pos: spec.At("freshet.yaml", 9, 12)},
		Events: spec.Events{Insert: true, Delete: true},
		Columns: []spec.Text{
			{Value: "name", Pos: spec.At("freshet.yaml", 11, 15)}, {Value: "price", Pos: spec.At("freshet.yaml", 11, 21)},
		},
		When: spec.Text{Value: "row.status == 'live'", Pos: spec.At("freshet.yaml", 12, 12)},
		Keys: []spec.Text{
			{Value: "{{order}}:{id}", Pos: spec.At("freshet.yaml", 14, 10)},
			{Value: "sku:{sku|lower}", Pos: spec.At("freshet.yaml", 15, 10)},
		},
		SecondDelete: 500 * time.Millisecond,
	}
	if d := cmp.Diff(want, c.Mappings[1], cmpopts.IgnoreTypes([]spec.Run{})); d != "" {
		t.Error(d)
	}
}

func TestAnchorsAndMergeKeysAreFollowed(t *testing.T) {
	c := mustParse(t, `source: {addresses: &all ["127.0.0.1:3306"], user: &name freshet, password: *name}
redis: {addresses: *all}
mappings:
  - &base
    table: shop.a
    keys: &keys ["a:{id}"]
    second_delete: 5s
  - table: shop.b
    <<: *base
  - <<: [{second_delete: none}, *base]
    table: shop.c
    keys: *keys
`)
	if got := c.Source.Password.Reveal(); got != "freshet" {
		t.Errorf("password %q", got)
	}
	var got []string
	for _, m := range c.Mappings {
		got = append(got, fmt.Sprint(m.Table.Value, " ", m.Keys[0].Value, " ", m.SecondDelete))
	}
	if want := []string{"shop.a a:{id} 5s", "shop.b a:{id} 5s", "shop.c a:{id} 0s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAliasesThatMultiplyAreStopped(t *testing.T) {
	var b strings.Builder
	b.WriteString(minimal)
	b.WriteString("  - &m0 {table: a.b, keys: [x]}\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, "  - &m%d {<<: [*m%d, *m%d], table: a.t%d}\n", i, i-1, i-1, i)
	}
	_, err := Parse("freshet.yaml", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "too large to read") &&
		!strings.Contains(err.Error(), "nested too deeply") {
		t.Fatal(err)
	}
}

func TestAFileThatIsTooLargeIsNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(file, []byte(minimal+strings.Repeat("#\n", maxFile/2)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "at most 4MiB are read") {
		t.Fatal(err)
	}
}

func TestAByteOrderMarkIsSkipped(t *testing.T) {
	c := mustParse(t, "\uFEFF"+minimal)
	if c.origins["source.user"] != spec.At("freshet.yaml", 3, 9) {
		t.Errorf("%v", c.origins["source.user"])
	}
}

func TestCharactersThatAreNotYAMLAreFound(t *testing.T) {
	for name, text := range map[string]string{
		"not UTF-8":         "# é\nx: \xff\n",
		"control character": "# é\nx: \x01\n",
		"UTF-16":            "# é\nx: \uFFFE\n",
	} {
		_, err := Parse("freshet.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "freshet.yaml:2:4: a character") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadSaysWhyAFileCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for file, want := range map[string]string{
		filepath.Join(dir, "absent.yaml"): "absent.yaml: the file cannot be read: no such file or directory: write it",
		dir:                               dir + ": the file cannot be read: is a directory: make it readable",
	} {
		_, err := Load(file)
		var ps spec.Problems
		if !errors.As(err, &ps) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestChecksAddToTheProblemsInTheOrderOfTheFile(t *testing.T) {
	text := minimal + `  - table: shop.user
    keys: ["user:{idd}"]
log: {level: loud}
`
	called := 0
	_, err := Parse("freshet.yaml", []byte(text), func(c *Config) spec.Problems {
		called++
		key := c.Mappings[1].Keys[0]
		return spec.Problems{{
			Pos: key.At(strings.Index(key.Value, "idd")), What: `there is no column "idd"`,
			Do: `did you mean "id"?`,
		}}
	})
	want := `freshet.yaml:10:19: there is no column "idd": did you mean "id"?
freshet.yaml:11:14: log.level: "loud" is unknown: write debug, info, warn or error`
	if called != 1 || err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	var p spec.Problem
	if !errors.As(err, &p) || p.Pos.Line != 10 {
		t.Errorf("the problems are not errors of their own: %+v", p)
	}
}

func TestAFailedCheckAloneRefusesTheConfiguration(t *testing.T) {
	c, err := Parse("freshet.yaml", []byte(minimal),
		func(c *Config) spec.Problems { return spec.Problems{{Pos: c.Mappings[0].Pos, What: "no"}} })
	if c != nil || err == nil || err.Error() != "freshet.yaml:7:5: no" {
		t.Errorf("%v %v", c, err)
	}
}
