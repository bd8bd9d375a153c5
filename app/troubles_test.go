package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/router"
)

func TestWhatLeavesAKeyStaleIsInDoubtAndTheRestIsNot(t *testing.T) {
	board, err := alarm.New(slog.New(slog.DiscardHandler), nil)
	must(t, err)
	for kind, want := range map[router.Trouble]alarm.Kind{
		router.ColumnAbsent: alarm.ColumnAbsent, router.KeyTooLong: alarm.KeyTooLong,
		router.ValueTooLarge: "", router.ValueUnfit: "", router.PredicateFailed: "",
	} {
		x := troubles{alarms: board, doubts: book(t, board), source: "shop"}
		x.Report(kind, "shop.product", "product:{id}", "a sentence")
		_, err := x.record(t.Context())
		must(t, err)
		l := x.doubts.List()
		if want == "" {
			if len(l) > 0 {
				t.Errorf("%d: %+v", kind, l)
			}
			continue
		}
		if len(l) != 1 || l[0].Cause != want || l[0].Source != "shop" || l[0].Tables[0] != "shop.product" ||
			!slices.Equal(l[0].Templates, []string{"product:{id}"}) {
			t.Errorf("%d: %+v", kind, l)
		}
	}
}

func TestAMillionRowsWithTheSameTroubleCostNothing(t *testing.T) {
	x := troubles{doubts: book(t, nil), source: "shop"}
	x.Report(router.ColumnAbsent, "shop.product", "product:{id}", "a sentence")
	if n := testing.AllocsPerRun(1000, func() {
		x.Report(router.ColumnAbsent, "shop.product", "product:{id}", "a sentence")
	}); n > 0 {
		t.Errorf("%v allocations for a row", n)
	}
	for i := range 10 * maxGathered {
		x.Report(router.ColumnAbsent, "shop.product", "product:{id}", fmt.Sprint("sentence ", i))
	}
	if len(x.gathered) > maxGathered+1 {
		t.Errorf("%d gathered", len(x.gathered))
	}
	all := x.gathered[trouble{message: string(alarm.ColumnAbsent)}]
	if all.Message == "" || len(all.Tables)+len(all.Templates) > 0 {
		t.Errorf("what is too much is not about all keys: %+v", all)
	}
}

// The position passes a row only when it is durable that its key may be stale.
func TestABatchIsNotHandedOnBeforeItsDoubtsAreDurable(t *testing.T) {
	r, log := newReader(t)
	kept, err := doubt.New(&doubttest.Memory{Fail: func(_ context.Context, op, _ string) error {
		if op == "put" && len(log.batches) > 0 {
			return errors.New("it was handed on")
		}
		return nil
	}}, nil, nil)
	must(t, err)
	r.troubles.doubts = kept
	r.troubles.Report(router.ColumnAbsent, "shop.product", "product:{id}", "a sentence")
	must(t, r.Row(row(100, "")))
	must(t, r.Commit(&event.Tx{}, end(100)))
	must(t, r.Flush())
	if len(kept.List()) != 1 || len(log.batches) != 1 {
		t.Fatalf("%+v, %d batches", kept.List(), len(log.batches))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r.troubles.Report(router.ColumnAbsent, "shop.other", "other:{id}", "another")
	must(t, r.Row(row(200, "")))
	must(t, r.Commit(&event.Tx{}, end(200)))
	if err := r.flush(gone); !errors.Is(err, context.Canceled) || len(log.batches) != 1 {
		t.Fatalf("%v, %d batches", err, len(log.batches))
	}
}

// unnamed is a router whose rows lack the column of their key from a position on.
type unnamed struct {
	fakeRouter
	troubles *troubles
	from     uint64
}

func (u *unnamed) Route(b *event.Batch, c *event.Change) {
	if c.Version.Pos < u.from {
		u.fakeRouter.Route(b, c)
		return
	}
	u.troubles.Report(router.ColumnAbsent, "shop.product", "product:{id}", "a sentence")
}

// The answer to a doubt waits for a mark that covers the row. On a source that is idle from then on no other row brings
// one.
func TestTheDoubtAboutARowWithoutKeysIsCoveredByAMark(t *testing.T) {
	for _, from := range []uint64{0, 200} {
		r, log := newReader(t)
		asked := &fakeSource{}
		r.source, r.router = asked, &unnamed{troubles: r.troubles, from: from}
		for pos := uint64(100); pos <= 200; pos += 100 {
			must(t, r.Row(row(pos, "")))
		}
		must(t, r.Commit(&event.Tx{}, end(250)))
		must(t, r.Flush())
		must(t, r.Flush())
		all := r.troubles.doubts.List()
		if len(all) != 1 || len(log.batches) != 1 {
			t.Fatalf("%+v, %d batches", all, len(log.batches))
		}
		if want := all[0].At; want.Pos != 200 || !slices.Equal(asked.asked, []event.Version{want}) {
			t.Errorf("the doubt is about %s, marks were asked for up to %s", want, asked.asked)
		}
	}
}

func TestAFirstStartIsInDoubtOnlyIfRedisHoldsKeysOfTheMappings(t *testing.T) {
	for _, x := range []struct {
		name, key, prefix string
		doubts            int
	}{
		{"empty", "", "", 0},
		{"keys of others", "session:1", "", 0},
		{"a key of a mapping", "product:1", "", 1},
		{"without the prefix", "product:1", "p:", 0},
		{"with the prefix", "p:product:1", "p:", 1},
		{"a hash of a mapping", "stock:7", "", 1},
		{"a key that expires", "banner:7", "", 1},
		{"a counter", "articles:gen", "", 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			server := testbed.Redis(t)
			if x.key != "" {
				server.Do(t, "SET", x.key, "v")
			}
			p, keys := firstStarter(t, server.Addr, x.prefix)
			must(t, p.firstStart(t.Context(), "binlog.000001:4", keys))
			if l := p.doubts.List(); len(l) != x.doubts || x.doubts > 0 && l[0].Cause != alarm.FirstStart {
				t.Errorf("%+v", l)
			}
			if a := p.alarms.Records(); len(a) != x.doubts {
				t.Errorf("%+v", a)
			}
		})
	}
}

// Nobody knows later what was there: readers will have cached more.
func TestAFirstStartThatCannotLookSaysSo(t *testing.T) {
	for name, address := range map[string]string{"away": "127.0.0.1:1", "silent": silentServer(t)} {
		t.Run(name, func(t *testing.T) {
			p, keys := firstStarter(t, address, "")
			must(t, p.firstStart(t.Context(), "binlog.000001:4", keys))
			l := p.doubts.List()
			if len(l) != 1 || l[0].Cause != alarm.FirstStart || l[0].Source != "shop" ||
				!strings.Contains(l[0].Message, "whether redis "+address+" holds keys") {
				t.Errorf("%+v", l)
			}
		})
	}
}

// silentServer takes connections and never answers.
func silentServer(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l.Addr().String() // the kernel takes them
}

func TestOneKeyOfAMappingIsFoundAmongVeryMany(t *testing.T) {
	server := testbed.Redis(t)
	for n := range 24 {
		server.Do(t, "EVAL", "for i = 1, 5000 do redis.call('SET', 'session:' .. ARGV[1] .. i, 'v') end", "0",
			fmt.Sprint(n, "/"))
	}
	_, of := firstStarter(t, server.Addr, "")
	keys, err := of.Unasked()
	must(t, err)
	look := func() bool {
		found, err := holdsKeys(t.Context(), scope.Single{Client: server.Client()}, keys, "")
		must(t, err)
		return found
	}
	if look() {
		t.Error("sessions are taken for products")
	}
	server.Do(t, "SET", "product:1", "v")
	if !look() {
		t.Error("the product is not found")
	}
}

// Each master has keys of its own. While slots move, a key may be on its way from one that was not looked at yet to one
// that was.
func TestAFirstStartLooksAtAllMastersOfACluster(t *testing.T) {
	cluster := testbed.Cluster(t, testbed.ClusterOptions{Masters: 2})
	client := cluster.Client(nil)
	t.Cleanup(func() { must(t, client.Close()) })
	doubts := func() []doubt.Doubt {
		p, keys := firstStarter(t, cluster.Masters[0].Addr, "")
		p.config.Redis.Mode = config.RedisCluster
		must(t, p.firstStart(t.Context(), "binlog.000001:4", keys))
		return p.doubts.List()
	}
	if l := doubts(); len(l) != 0 {
		t.Errorf("of an empty cluster: %+v", l)
	}
	seen := map[bool]bool{}
	for id := 0; len(seen) < 2; id++ {
		key := fmt.Sprint("product:", id)
		must(t, client.Set(t.Context(), key, "v", 0).Err())
		first := cluster.Masters[0].Client().DBSize(t.Context()).Val() > 0
		if !seen[first] {
			if l := doubts(); len(l) != 1 || !strings.Contains(l[0].Message, "holds keys that the mappings can have made") {
				t.Errorf("%s is on the first master: %t; %+v", key, first, l)
			}
		}
		seen[first] = true
		must(t, client.Del(t.Context(), key).Err())
	}
	cluster.BeginMove(t, 0, cluster.Masters[0], cluster.Masters[1])
	if l := doubts(); len(l) != 1 || !strings.Contains(l[0].Message, "slots were moved") {
		t.Errorf("while a slot is being moved: %+v", l)
	}
}

// firstStarter makes a first start over a Redis. The source does not answer.
func firstStarter(t *testing.T, redis, prefix string) (*shared, *operate.Keys) {
	return starter(t, "127.0.0.1:1", redis, `
  - {table: shop.product, keys: ["product:{id}"]}
  - {table: shop.product, hash: {key: "stock:{id}", field: count}}
  - {table: shop.product, expire: {keys: ["banner:{id}"], in: 1h}}
  - {table: shop.product, incr: "articles:gen"}`, prefix)
}

// starter makes a first start of a source over a Redis.
func starter(t *testing.T, source, redis, mappings, prefix string) (*shared, *operate.Keys) {
	t.Helper()
	c, err := config.Parse("freshet.yaml", fmt.Appendf(nil, `
source: {name: shop, addresses: [%q], user: root}
redis: {addresses: [%q], key_prefix: %q}
mappings:%s
`, source, redis, prefix, mappings), operate.CheckMappings)
	must(t, err)
	route, err := router.New(c.Mappings, router.Options{})
	must(t, err)
	o := connect.Source(c)
	connect.Routed(&o, route)
	board, err := alarm.New(slog.New(slog.DiscardHandler), nil)
	must(t, err)
	return &shared{alarms: board, doubts: book(t, board), config: c},
		&operate.Keys{Mappings: route.Mappings(), Source: o, Prefix: prefix}
}

// What a template can have made is known from what only begins alike, as far as the tables tell.
func TestAFirstStartIsNotInDoubtForTheKeysOfOthers(t *testing.T) {
	source, redis := testbed.MariaDB(t), testbed.Redis(t)
	source.Exec(t, "CREATE DATABASE shop",
		"CREATE TABLE shop.product (id INT PRIMARY KEY, name VARCHAR(20), sku VARCHAR(20))")
	for _, x := range []struct {
		key    string
		doubts int
	}{
		{"product:17", 1},
		{"product:-2147483648", 1},
		{"product:x", 0},
		{"product:2147483648", 0},
		{"product:1:reviews", 0},
		{"stock:17", 1},
		{"stock:x", 0},
		{"name:anything: at all", 1}, // free text
		{"names", 0},
		{"sku:A-1", 1},
		{"sku:a-1", 0},
		{"articles:gen", 1},
		{"articles:gen:1", 0},
		{"of:x", 1}, // of a table that is not there
		{"md5:" + strings.Repeat("0a", 16), 1},
		{"md5:x", 0},
	} {
		t.Run(x.key, func(t *testing.T) {
			redis.Do(t, "FLUSHALL")
			redis.Do(t, "SET", "p:"+x.key, "v")
			redis.Do(t, "SET", x.key, "without the prefix")
			p, keys := starter(t, source.Addr, redis.Addr, `
  - {table: shop.product, keys: ["product:{id}", "name:{name}", "md5:{name|md5}"]}
  - {table: shop.product, keys: ["sku:{sku}"], scope: {sku: "[A-Z0-9-]+"}}
  - {table: shop.product, hash: {key: "stock:{id}", field: count}}
  - {table: shop.product, incr: "articles:gen"}
  - {table: shop.other, keys: ["of:{id}"]}`, "p:")
			must(t, p.firstStart(t.Context(), "binlog.000001:4", keys))
			if l := p.doubts.List(); len(l) != x.doubts {
				t.Errorf("%+v", l)
			}
		})
	}
}

// What follows from a thousand rows of parents is one doubt for a batch, about the last of them, and durable before the
// batch's end is.
func TestABurstOfCascadesIsOneDoubt(t *testing.T) {
	r, log := newReader(t)
	puts := 0
	kept, err := doubt.New(&doubttest.Memory{Fail: func(_ context.Context, op, _ string) error {
		if op == "put" {
			puts++
		}
		if op == "put" && len(log.batches) > 0 {
			return errors.New("the end was handed on")
		}
		return nil
	}}, nil, nil)
	must(t, err)
	r.troubles.doubts = kept
	const rows = 1000
	for i := range uint64(rows) {
		r.cascaded(&canal.Step{Tx: &event.Tx{}, Cascaded: []doubt.Doubt{{
			Cause: alarm.RowsCascaded, Tables: []string{"shop.item"}, Message: "a sentence", At: version(1, 1, 100+i, 0),
		}}})
	}
	must(t, r.Commit(&event.Tx{}, end(5000)))
	must(t, r.Flush())
	l := kept.List()
	if puts != 1 || len(l) != 1 || l[0].At != version(1, 1, 100+rows-1, 0) || len(log.batches) != 1 {
		t.Errorf("%d puts, %+v, %d batches", puts, l, len(log.batches))
	}
}

// What is said of doubts while definitions come is kept once that can be: brokers that choose a leader do not end the
// reader.
func TestAKeeperThatIsAwayDoesNotEndTheReaderOfATableThatFitsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, away := &doubttest.Memory{}, 0
		m.Fail = func(context.Context, string, string) error {
			if away > 0 {
				away--
				return errors.New("not the leader for the partition")
			}
			return nil
		}
		b, err := doubt.New(m, nil, nil)
		must(t, err)
		x := troubles{doubts: b, source: "shop", heals: true}
		for _, problems := range []spec.Problems{{{What: "no column sku"}}, nil, {{What: "no column sku"}}, nil} {
			away = 3
			must(t, x.fit(t.Context(), product, problems))
		}
		if all := b.List(); len(all) != 1 || !all[0].Asked {
			t.Errorf("in doubt: %+v", all)
		}
	})
}

// What is in doubt of a table because its rows could not be used is answered once a definition comes under which they
// can be: by itself, and for this table alone. An answer that is asked for does not end what begins again.
func TestATableThatFitsAgainIsForgottenByItself(t *testing.T) {
	x := troubles{doubts: book(t, nil), source: "shop", heals: true}
	bind := func(table *event.Table, problems spec.Problems) {
		t.Helper()
		_, err := x.binding(func(*event.Table) ([]event.Need, error) {
			if problems == nil {
				return nil, nil
			}
			return nil, problems
		})(t.Context(), table)
		must(t, err)
	}
	asked := func() (all []string) {
		for _, d := range x.doubts.List() {
			if d.Asked {
				all = append(all, fmt.Sprintf("%s %v %d", d.Cause, d.Tables, d.At.Pos))
			}
		}
		slices.Sort(all)
		return all
	}
	other := &event.Table{Schema: "shop", Name: "other"}
	noSKU := spec.Problems{{What: "no column sku"}}
	bind(product, noSKU)
	bind(other, noSKU)
	x.begin(version(1, 1, 100, 1))
	if bind(product, noSKU); asked() != nil || len(x.doubts.List()) != 2 {
		t.Fatalf("answered while the mapping does not fit: %+v", x.doubts.List())
	}
	x.begin(version(1, 1, 200, 1))
	if bind(product, nil); !slices.Equal(asked(), []string{"mapping_unfit [shop.product] 200"}) {
		t.Fatalf("once it fits: answered %v of %+v", asked(), x.doubts.List())
	}
	if bind(product, noSKU); asked() != nil || len(x.doubts.List()) != 2 {
		t.Fatalf("it does not fit again: answered %v of %+v", asked(), x.doubts.List())
	}
	unread := doubt.Doubt{Cause: alarm.EventUndecodable, Source: "shop", Tables: []string{"shop.product"}}
	must(t, x.doubts.Record(t.Context(), unread))
	x.heals = false // changes that are done again, from the past
	if bind(product, nil); asked() != nil {
		t.Fatalf("answered by what is over: %v", asked())
	}
	x.heals = true
	bind(product, nil)
	want := []string{"event_undecodable [shop.product] 200", "mapping_unfit [shop.product] 200"}
	if !slices.Equal(asked(), want) {
		t.Fatalf("answered %v, want %v", asked(), want)
	}
	before := x.doubts.List()
	if bind(product, nil); !reflect.DeepEqual(before, x.doubts.List()) {
		t.Errorf("asked for once more: %+v", x.doubts.List())
	}
	found := []router.Misfit{{Table: product, Problem: noSKU[0]}}
	must(t, x.fitAll(t.Context(), []*event.Table{product, other}, found))
	want = []string{"event_undecodable [shop.product] 200", "mapping_unfit [shop.other] 200"}
	if !slices.Equal(asked(), want) {
		t.Errorf("at a start: answered %v, want %v", asked(), want)
	}
}

// The source is asked for tables of which no row comes. What has come since it was asked counts more.
func TestAMappingThatFitsIsForgottenThoughNoRowComes(t *testing.T) {
	x := troubles{doubts: book(t, nil), source: "shop", heals: true}
	noSKU := spec.Problems{{What: "no column sku"}}
	other := &event.Table{Schema: "shop", Name: "other"}
	must(t, x.fit(t.Context(), product, noSKU))
	must(t, x.fit(t.Context(), other, noSKU))
	asked := func() (all []string) {
		for _, d := range x.doubts.List() {
			if d.Asked {
				all = append(all, fmt.Sprintf("%v %d", d.Tables, d.At.Pos))
			}
		}
		return all
	}
	heal := func(at uint64, when time.Time, tables []*event.Table, still ...router.Misfit) {
		t.Helper()
		must(t, x.healBy(t.Context(), tables, still, version(1, 1, at, 0), when))
	}
	both, before := []*event.Table{product, other}, time.Now()
	stillOther := router.Misfit{Table: other, Problem: noSKU[0]}
	heal(100, before, both, router.Misfit{Table: product, Problem: noSKU[0]}, stillOther)
	heal(100, before, []*event.Table{other}, stillOther) // it is not there
	if asked() != nil {
		t.Fatalf("answered though it does not fit: %v", asked())
	}
	heal(100, time.Time{}, both)
	if asked() != nil {
		t.Fatalf("answered though it did not fit since: %v", asked())
	}
	time.Sleep(time.Millisecond) // for clocks that are coarse
	heal(200, time.Now(), both, stillOther)
	if !slices.Equal(asked(), []string{"[shop.product] 200"}) {
		t.Fatalf("answered %v", asked())
	}
	count := x.doubts.List()[0].Count
	if heal(300, time.Now(), both, stillOther); x.doubts.List()[0].Count != count {
		t.Error("asked for once more")
	}
}

// A mapping that no table matches is in doubt, for its templates alone, until there is one: with its first row, or at
// the next start.
func TestAMappingThatATableComesForIsForgottenByItself(t *testing.T) {
	text := func(s string) spec.Text { return spec.Text{Value: s} }
	route, err := router.New([]spec.Mapping{
		{Table: text("shop.product"), Keys: []spec.Text{text("product:{id}")}},
		{Table: text("shop.gone_*"), Keys: []spec.Text{text("gone:{id}"), text("all")}},
		{Table: text("shop.lost"), Keys: []spec.Text{text("product:{id}")}},
	}, router.Options{})
	must(t, err)
	x := troubles{doubts: book(t, nil), source: "shop", heals: true, mappings: route.Mappings()}
	table := func(name string) *event.Table {
		return &event.Table{Schema: "shop", Name: name, Columns: []event.Column{{Name: "id", Class: event.ClassInt}}}
	}
	product, gone, lost := table("product"), table("gone_1"), table("lost")
	start := func(tables ...*event.Table) { must(t, x.fitAll(t.Context(), tables, route.Unfit(tables))) }
	asked := func() (all []string) {
		for _, d := range x.doubts.List() {
			if d.Cause != alarm.MappingUnfit || !d.EveryTable() {
				t.Errorf("in doubt: %+v", d)
			}
			if d.Asked {
				all = append(all, strings.Join(d.Templates, " "))
			}
		}
		return all
	}
	start(product)
	if list := x.doubts.List(); len(list) != 2 || asked() != nil {
		t.Fatalf("at a start: in doubt %+v", list)
	}
	bind := x.binding(func(*event.Table) ([]event.Need, error) { return nil, nil })
	for _, c := range []struct {
		table *event.Table
		want  []string
	}{
		{product, nil}, {gone, []string{"all gone:{id}"}}, {gone, []string{"all gone:{id}"}},
	} {
		_, err := bind(t.Context(), c.table)
		must(t, err)
		if got := asked(); !slices.Equal(got, c.want) {
			t.Errorf("after a row of %s: %q is answered, want %q", c.table, got, c.want)
		}
	}
	start(product, gone, lost)
	if got := asked(); len(got) != 2 {
		t.Errorf("at the next start: %q is answered", got)
	}
}
