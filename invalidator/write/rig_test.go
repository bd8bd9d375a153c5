package write

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// rig sends calls to a real Redis.
type rig struct {
	testing.TB
	server *testbed.RedisServer
	client *redis.Client
	b      *Builder
	// scripts are run in the place of the builder's.
	scripts *scripts
	// begun are the marks that items have left: what is done again confirms them, as a final action does.
	begun map[string]int64
}

func newRig(t testing.TB, server *testbed.RedisServer, o Options) *rig {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{TB: t, server: server, client: server.Client(), b: b, scripts: theScripts, begun: map[string]int64{}}
}

// send sends the calls in one round trip, and again those whose script was missing, as the engine does.
func send(ctx context.Context, client redis.UniversalClient, calls []*Call) {
	sendPacked(ctx, client, Alone(calls))
}

func sendPacked(ctx context.Context, client redis.UniversalClient, packed []Packed) {
	for range 2 {
		pipe := client.Pipeline()
		replies := make([]*redis.Cmd, len(packed))
		for i, p := range packed {
			replies[i] = pipe.Do(ctx, p.Args...)
		}
		_, _ = pipe.Exec(ctx)
		missing := false
		for i, p := range packed {
			reply, err := replies[i].Result()
			p.Answer(reply, err)
			if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
				missing = true
				script := p.Calls[0].Script
				client.ScriptLoad(ctx, script.Source)
				if script.several != nil {
					client.ScriptLoad(ctx, script.several.Source)
				}
			}
		}
		if !missing {
			return
		}
	}
}

// do sends an item and returns what it did.
func (r *rig) do(it *Item) Outcome {
	r.Helper()
	o, err := r.try(it)
	if err != nil {
		r.Fatalf("%s %s: %v", it.Action, it.Key, err)
	}
	return o
}

func (r *rig) try(it *Item) (Outcome, error) {
	defer r.b.Reset()
	change := it.Key + " " + it.Version.String()
	it.Begun = max(it.Begun, r.begun[change])
	calls := r.b.Append(nil, it)
	r.scripts.run(calls)
	send(r.Context(), r.client, calls)
	if n := r.b.Begun(calls); n > 0 {
		r.begun[change] = n
	}
	return r.b.Outcome(it, calls)
}

func (r *rig) redis(words ...any) any {
	r.Helper()
	v, err := r.client.Do(r.Context(), words...).Result()
	if err != nil && err != redis.Nil {
		r.Fatalf("redis %v: %v", words, err)
	}
	return v
}

func fields(values ...string) event.Fields {
	var f []byte
	for _, v := range values {
		f = event.AppendField(f, v)
	}
	return f
}

func at(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1} }

const testD = 2 * time.Second

// inTime is an [Item].Until that does not come.
const inTime = math.MaxInt64

// inRedis is a version as the guard has it.
func inRedis(v event.Version) string { return strings.Clone(new(Builder).ordered(v)) }
