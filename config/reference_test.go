package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// testdata/reference.yaml is the whole surface that users are told of.
func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheReferenceShowsTheDefaults(t *testing.T) {
	c := mustParse(t, reference(t))
	same := cmp.Options{
		cmpopts.IgnoreFields(Config{}, "Mappings"), cmpopts.IgnoreUnexported(Config{}),
		cmpopts.EquateEmpty(), sameSecret,
	}
	if d := cmp.Diff(mustParse(t, minimal), c, same); d != "" {
		t.Errorf("what the reference shows is not the default (-default +reference):\n%s", d)
	}
}

// words are texts without their places.
func words(values ...string) []spec.Text {
	texts := make([]spec.Text, len(values))
	for i, v := range values {
		texts[i] = spec.Text{Value: v}
	}
	return texts
}

func word(value string) spec.Text { return spec.Text{Value: value} }

func TestTheReferenceShowsEveryAction(t *testing.T) {
	plain := func(table string, keys ...string) spec.Mapping {
		return spec.Mapping{
			Table: word(table), Events: spec.Events{Insert: true, Update: true, Delete: true},
			Keys: words(keys...), SecondDelete: 2 * time.Second,
		}
	}
	with := func(m spec.Mapping, edit func(*spec.Mapping)) spec.Mapping {
		edit(&m)
		return m
	}
	want := []spec.Mapping{
		with(plain("shop.product", "product:{id}", "category:{category_id}:products", "sku:{sku|lower}", "hot:{id}:{0..7}"),
			func(m *spec.Mapping) {
				m.Columns, m.When = words("name", "price"), word("row.status == 'live' || old.status == 'live'")
			}),
		plain("shop.order_{00..63}", "{{order}}:{id}"),
		with(plain("shop.user", "user:{id}"), func(m *spec.Mapping) {
			m.Rebuild = &spec.Rebuild{
				FromRow: true, As: event.FormJSON, Columns: words("id", "user_name as userName", "email"),
				Decimals: spec.DecimalsString, Rows: spec.RowsOne,
				TTL: time.Hour, Jitter: 0.1, Missing: &spec.Missing{TTL: 30 * time.Second},
			}
		}),
		with(plain("shop.review", "product:{product_id}:rating"), func(m *spec.Mapping) {
			m.Rebuild = &spec.Rebuild{
				Query:  word("SELECT avg(stars) AS stars, count(*) AS n FROM review WHERE product_id = :product_id"),
				Server: word("source"), Timeout: 5 * time.Second, As: event.FormHash, Decimals: spec.DecimalsString,
				Rows: spec.RowsOne,
			}
		}),
		with(plain("shop.user_profile"),
			func(m *spec.Mapping) { m.Hash = &spec.Hash{Key: word("user:{user_id}"), Field: word("profile")} }),
		with(plain("shop.tag_member"),
			func(m *spec.Mapping) { m.Set = &spec.Set{Key: word("tag:{tag}"), Member: word("{user_id}")} }),
		with(plain("shop.score"), func(m *spec.Mapping) {
			m.ZSet = &spec.ZSet{
				Key:    word("board:{game}"),
				Member: word("{user_id}"),
			}
		}),
		with(plain("shop.article"), func(m *spec.Mapping) { m.Incr = word("articles:gen") }),
		with(plain("shop.setting"), func(m *spec.Mapping) {
			m.Expire = &spec.Expire{
				Keys: words("setting:{name}"),
				In:   5 * time.Second,
			}
		}),
		with(plain("shop.price", "price:{id}"), func(m *spec.Mapping) {
			m.Publish = &spec.Publish{Channel: word("price-changed"), Message: word("{id}")}
			m.Stream = &spec.Stream{Key: word("price-changes"), MaxLen: 10000}
		}),
	}
	c := mustParse(t, reference(t))
	if d := cmp.Diff(want, c.Mappings, cmpopts.IgnoreTypes(spec.Pos{}, []spec.Run{}), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("the mappings of the reference (-want +got):\n%s", d)
	}
	// Places are told where things stand in the file.
	r := c.Mappings[2].Rebuild
	if got, want := r.Pos, spec.At("freshet.yaml", 98, 5); got != want {
		t.Errorf("the rebuild stands at %v, want %v", got, want)
	}
	if got, want := r.Columns[1].At(len("user_name as ")), spec.At("freshet.yaml", 98, 64); got != want {
		t.Errorf("userName stands at %v, want %v", got, want)
	}
}

func TestTheReferenceShowsTheDefaultsOfKafka(t *testing.T) {
	text := strings.Replace(reference(t), "kind: embedded ", "kind: kafka ", 1)
	text = strings.Replace(text, "brokers: [] ", `brokers: ["kafka:9092"] `, 1)
	c := mustParse(t, text)
	want := mustParse(t, minimal).EventLog.Kafka
	want.Brokers = []string{"kafka:9092"}
	if d := cmp.Diff(want, c.EventLog.Kafka, sameSecret); d != "" {
		t.Error(d)
	}
	for _, k := range keys() {
		if _, given := c.origins[k.path]; given && !k.required && k.path != "eventlog.kind" &&
			k.path != "eventlog.kafka.brokers" && !slices.Equal(k.get(c), append([]string{}, k.def...)) {
			t.Errorf("%s: the reference shows %q, the default is %q", k.path, k.get(c), k.def)
		}
	}
}

func TestEveryKeyIsInTheReference(t *testing.T) {
	text := reference(t)
	c := mustParse(t, text)
	for _, k := range keys() {
		_, name := split(k.path)
		_, given := c.origins[k.path]
		// A few, those of files and the like, are in comments only.
		if !given && !regexp.MustCompile(`#.*\b`+name+`\b`).MatchString(text) && !strings.Contains(text, "; "+name) {
			t.Errorf("%s is in no line of the reference", k.path)
		}
	}
	for _, name := range mappingKeys() {
		if !regexp.MustCompile(`(?m)^  [- ] ` + name + `:`).MatchString(text) {
			t.Errorf("%s of a mapping is in no line of the reference", name)
		}
	}
}
