package invalidator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/testbed"
)

// endlessLog makes batches for as long as they are fetched.
type endlessLog struct{ keys, made int }

func (*endlessLog) ID() int { return 0 }

func (l *endlessLog) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("product:%d:%d", l.made, i)
	}
	l.made++
	return batchOf(uint64(l.made+4), d2, keys...), token{n: l.made}, ctx.Err()
}

func (*endlessLog) Commit(eventlog.Token) {}

// What max_memory counts is about what the pending keys really hold, be it of many small batches or a few large.
func TestPendingKeysHoldAboutWhatIsCounted(t *testing.T) {
	const limit = 32 << 20
	for _, keys := range []int{1, 20, 2000} {
		e := start(t, Deps{Redis: noRedis{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, Options{MaxMemory: limit, MaxPending: 1 << 30})
		before := heapBytes()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- e.Serve(ctx, &endlessLog{keys: keys}) }()
		testbed.Eventually(t, time.Minute, "the cap is reached", func() bool {
			s := e.Snapshot()
			return s.Waiting == "invalidator.max_memory is reached" && s.InFlight == 0
		})
		held := heapBytes() - before
		t.Logf("batches of %d keys: %d keys pending, %d MiB counted, %d MiB held",
			keys, e.Snapshot().Pending, e.Snapshot().Bytes>>20, held>>20)
		if held > limit*5/4 || held < limit/2 {
			t.Errorf("batches of %d keys hold %d bytes, counted as %d", keys, held, limit)
		}
		stop()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
