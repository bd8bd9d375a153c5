package write

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

const (
	benchPipeline = 100
	benchKeys     = 10000
)

var benchValue = strings.Repeat("v", 100)

// benchItem is what is written for the n-th time: another version each, of one of benchKeys keys.
type benchItem func(n int) *Item

func benchKey(n int) string { return "key:" + strconv.Itoa(n%benchKeys) }

func benchVersion(n int) event.Version {
	return event.Version{Epoch: 1, File: 112, Pos: uint64(1_000_000 + n), Row: 1}
}

// BenchmarkWrites is every action on a real Redis, in round trips of 100 down one connection. An operation is one
// action.
func BenchmarkWrites(b *testing.B) {
	row := func(e event.Effect, f ...string) benchItem {
		return func(n int) *Item {
			return &Item{
				Key: benchKey(n), Action: event.ActionRebuild, Intent: event.IntentPut, Effect: &e, Fields: fields(f...),
				Source: "default", Version: benchVersion(n), D: testD, Until: inTime,
			}
		}
	}
	action := func(a event.Action, e event.Effect, f ...string) benchItem {
		return func(n int) *Item {
			return &Item{
				Key: benchKey(n), Action: a, Intent: event.IntentPut, Effect: &e, Fields: fields(f...),
				Source: "default", Version: benchVersion(n), D: testD, Until: inTime,
			}
		}
	}
	var tenFields []string
	for i := range 10 {
		tenFields = append(tenFields, "field"+strconv.Itoa(i), benchValue[:10])
	}
	hset := append([]string{"hset", ""}, tenFields...)
	for _, c := range []struct {
		name  string
		item  benchItem
		plain []string // the same write without a guard; "" is the key
	}{
		{
			"rebuild string", row(event.Effect{As: event.FormString, TTL: time.Hour}, benchValue),
			[]string{"set", "", benchValue, "px", "3600000"},
		},
		{"rebuild hash", row(event.Effect{As: event.FormHash}, tenFields...), hset},
		{"field", action(event.ActionHash, event.Effect{}, "f", benchValue), []string{"hset", "", "f", benchValue}},
		{"member", action(event.ActionSet, event.Effect{}, "m"), []string{"sadd", "", "m"}},
		{"expire", action(event.ActionExpire, event.Effect{In: time.Minute}), []string{"pexpire", "", "60000"}},
		{"incr", action(event.ActionIncr, event.Effect{}), []string{"incr", ""}},
	} {
		b.Run(c.name, func(b *testing.B) { benchWrites(b, c.item, c.plain) })
	}
	b.Run("publish", benchPublish)
}

// newBenchRig returns a rig whose keys have companions that confirm.
func newBenchRig(b *testing.B, item benchItem) *rig {
	r := newRig(b, testbed.Redis(b), Options{})
	switch it := item(0); it.Action {
	case event.ActionExpire:
		for n := range benchKeys {
			r.redis("set", benchKey(n), "v")
		}
		return r
	case event.ActionSet:
		for n := range benchKeys {
			r.redis("sadd", benchKey(n), "other")
			r.redis("hset", "freshet:m:{"+benchKey(n)+"}", "<", inRedis(at(1))+" 0 default", ">", inRedis(at(1)))
		}
		return r
	}
	begun := int64(0)
	for range 2 { // the second time of a change confirms the companion that the first has begun
		for from := 0; from < benchKeys; from += benchPipeline {
			var calls []*Call
			for n := from; n < from+benchPipeline; n++ {
				it := item(n)
				it.Begun = begun
				calls = r.b.Append(calls, it)
			}
			send(b.Context(), r.client, calls)
			for i := range calls {
				begun = max(begun, r.b.Begun(calls[i:i+1]))
			}
			r.b.Reset()
		}
	}
	return r
}

func benchWrites(b *testing.B, item benchItem, plain []string) {
	r := newBenchRig(b, item)
	items := make([]*Item, benchPipeline)
	var guarded, bare time.Duration
	var calls []*Call
	b.ReportAllocs()
	b.ResetTimer()
	for from := benchKeys; from < benchKeys+b.N; from += benchPipeline {
		b.StopTimer()
		for i := range items {
			items[i] = item(from + i)
		}
		start := time.Now()
		b.StartTimer()
		calls = calls[:0]
		r.b.Reset()
		for _, it := range items {
			calls = r.b.Append(calls, it)
		}
		send(b.Context(), r.client, calls)
		b.StopTimer()
		guarded += time.Since(start)
		for i, it := range items {
			if o, err := r.b.Outcome(it, calls[i:i+1]); err != nil || o != Written {
				b.Fatalf("%s: %s, %v", it.Key, o, err)
			}
		}
		bare += barePipeline(b.Context(), r.client, plain, from)
		b.StartTimer()
	}
	b.StopTimer()
	trips := float64((b.N + benchPipeline - 1) / benchPipeline * benchPipeline)
	b.ReportMetric(trips/guarded.Seconds(), "writes/s")
	b.ReportMetric(trips/bare.Seconds(), "plain/s")
	b.ReportMetric(guarded.Seconds()/bare.Seconds(), "guard-cost")
	b.ReportMetric(redisBenchmark(b, r.server, plain), "redis-benchmark/s")
}

// barePipeline sends the plain writes of a round trip down the same client.
func barePipeline(ctx context.Context, client *redis.Client, plain []string, from int) time.Duration {
	start := time.Now()
	pipe := client.Pipeline()
	for i := range benchPipeline {
		args := make([]any, len(plain))
		for j, word := range plain {
			if word == "" {
				word = "plain:" + benchKey(from+i)
			}
			args[j] = word
		}
		pipe.Do(ctx, args...)
	}
	_, _ = pipe.Exec(ctx)
	return time.Since(start)
}

// redisBenchmark returns what redis-benchmark writes in a second, one connection and the same pipeline.
func redisBenchmark(b *testing.B, s *testbed.RedisServer, plain []string) float64 {
	args := []string{
		"-p", strconv.Itoa(s.Port), "-c", "1", "-P", strconv.Itoa(benchPipeline), "-n", "50000", "-r",
		strconv.Itoa(benchKeys), "--csv",
	}
	for _, word := range plain {
		if word == "" {
			word = "bench:__rand_int__"
		}
		args = append(args, word)
	}
	out, err := exec.CommandContext(b.Context(), "redis-benchmark", args...).Output()
	if err != nil {
		b.Fatalf("redis-benchmark: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	columns := strings.Split(lines[len(lines)-1], `","`)
	if len(columns) < 2 {
		b.Fatalf("redis-benchmark said %s", out)
	}
	rate, err := strconv.ParseFloat(strings.Trim(columns[1], `"`), 64)
	if err != nil {
		b.Fatalf("redis-benchmark said %s", out)
	}
	return rate
}

func benchPublish(b *testing.B) {
	r := newRig(b, testbed.Redis(b), Options{})
	n := &Notice{Key: "k", Effect: &event.Effect{Publish: true}, Fields: fields("changed", "17")}
	var calls []*Call
	b.ReportAllocs()
	b.ResetTimer()
	for from := 0; from < b.N; from += benchPipeline {
		calls = calls[:0]
		r.b.Reset()
		for range benchPipeline {
			calls = r.b.Notices(calls, n)
		}
		send(b.Context(), r.client, calls)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
	b.ReportMetric(redisBenchmark(b, r.server, []string{"publish", "changed", "17"}), "redis-benchmark/s")
}

// BenchmarkBlocking is how long Redis is busy with one script, by the size of what is written, as Redis itself measures
// it: the last script of a write, which decides, and those before it, which put a large hash together.
func BenchmarkBlocking(b *testing.B) {
	for _, c := range []struct {
		name   string
		fields int
		size   int
	}{
		{"string 1 KiB", 0, 1 << 10},
		{"string 1 MiB", 0, 1 << 20},
		{"string 8 MiB", 0, 8 << 20},
		{"hash 256x256", inlineFields, 256},
		{"hash 10000x100", 10000, 100},
		{"hash 100000x20", 100000, 20},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, testbed.Redis(b), Options{})
			r.redis("set", "freshet:v:{k}", inRedis(at(1))+" 0 s")
			it := put("k", strings.Repeat("x", c.size), at(2))
			if c.fields > 0 {
				it = large("k", c.fields, c.size, at(2))
			}
			r.do(it)
			r.redis("config", "set", "slowlog-log-slower-than", "0", "slowlog-max-len", "2000")
			var last, pieces []time.Duration
			for b.Loop() {
				r.redis("slowlog", "reset")
				if o := r.do(it); o != Written {
					b.Fatal(o)
				}
				for _, entry := range r.client.SlowLogGet(b.Context(), 2000).Val() {
					switch {
					case !strings.EqualFold(entry.Args[0], "evalsha"):
					case entry.Args[1] == theScripts.stage.SHA:
						pieces = append(pieces, entry.Duration)
					default:
						last = append(last, entry.Duration)
					}
				}
			}
			b.ReportMetric(median(last), "deciding-µs")
			if len(pieces) > 0 {
				b.ReportMetric(median(pieces), "piece-µs")
			}
		})
	}
}

// median is in microseconds.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds())
}

// Building calls allocates nothing once the builder has grown.
func TestAppendDoesNotAllocate(t *testing.T) {
	b, err := New(Options{Names: Names{Prefix: "app:"}})
	if err != nil {
		t.Fatal(err)
	}
	var items []*Item
	for i, k := range []string{"user:1", "{user:1}:x", "user:2"} {
		items = append(items, put(k, benchValue, benchVersion(i)), field(k, "f", "v", event.IntentPut, benchVersion(i)),
			member(k, "m", event.IntentRemove, benchVersion(i)), &Item{Key: k, Action: event.ActionIncr},
			&Item{Key: k, Action: event.ActionExpire, Effect: &event.Effect{In: time.Second}})
	}
	var calls []*Call
	run := func() {
		b.Reset()
		calls = calls[:0]
		for _, it := range items {
			calls = b.Append(calls, it)
		}
	}
	for range 20 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n > 0 {
		t.Errorf("%v allocations for %d items", n, len(items))
	}
}
