package invalidator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// keysPerBatch is what the reader puts into a batch at most.
const keysPerBatch = 2000

// benchBatches makes n batches of distinct keys; rows is how many keys a transaction has.
func benchBatches(n, rows int, d, age time.Duration) []*event.Batch {
	batches := make([]*event.Batch, n)
	key := 0
	for i := range batches {
		var b event.Batch
		b.Reset()
		b.Source, b.Term = "s", 1
		for b.Len() < keysPerBatch {
			if b.Len()%rows == 0 {
				b.AddOrigin(event.Origin{
					Table: "shop.product", D: d, Event: event.Version{Epoch: 1, File: 1, Pos: uint64(key + 4)},
					Tx: event.Tx{Committed: time.Unix(int64(key), 0)},
				})
			}
			key++
			b.Add(fmt.Appendf(b.Text(), "product:%d", key), uint32(b.Len()%rows+1), event.ActionDelete)
		}
		b.End = event.End{File: "binlog.000001", Pos: uint64(key + 5)}
		b.Age = age
		batches[i] = b.Clone()
	}
	return batches
}

func benchEngine(b *testing.B, r Redis, batches []*event.Batch) {
	e := start(b, Deps{Redis: r, Rebuilder: benchRebuilder{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		Options{})
	caughtUp(e)
	b.ReportAllocs()
	b.ResetTimer()
	log := &fakeLog{batches: make(chan *event.Batch, 16), commits: make(chan int, 1)}
	go func() {
		for i := range b.N {
			batch := *batches[i%len(batches)]
			batch.At = time.Now()
			log.batches <- &batch
		}
		close(log.batches)
	}()
	if err := e.Serve(b.Context(), log); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if log.watermark() != b.N {
		b.Fatalf("committed %d of %d", log.watermark(), b.N)
	}
	b.ReportMetric(float64(b.N*keysPerBatch)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
}

// benchRebuilder has the row at once.
type benchRebuilder struct{}

// Query implements [Rebuilder].
func (benchRebuilder) Query(_ context.Context, _, _ string, params []event.Fields, _ *event.GTIDSet,
	answer func(int, event.Fields, bool, error) bool,
) {
	for i := range params {
		if !answer(i, event.AppendField(nil, "a row"), false, nil) {
			return
		}
	}
}

// BenchmarkEngine is the engine by itself: a Redis that answers at once. An operation is a batch of 2000 keys.
func BenchmarkEngine(b *testing.B) {
	for _, rows := range []int{200, 1} {
		b.Run(fmt.Sprintf("single/rows=%d", rows), func(b *testing.B) {
			benchEngine(b, noRedis{}, benchBatches(64, rows, 0, 0))
		})
		b.Run(fmt.Sprintf("old/rows=%d", rows), func(b *testing.B) {
			benchEngine(b, noRedis{}, benchBatches(64, rows, 200*time.Millisecond, time.Hour))
		})
		b.Run(fmt.Sprintf("twice/rows=%d", rows), func(b *testing.B) {
			benchEngine(b, noRedis{}, benchBatches(64, rows, 200*time.Millisecond, 0))
		})
	}
}

// BenchmarkRedis is the engine on a real Redis compared with a bare loop of pipelined 500-key UNLINKs, one round trip
// of four commands at a time on each of four connections: what it costs to know what is finished.
func BenchmarkRedis(b *testing.B) {
	server := testbed.Redis(b)
	batches := benchBatches(64, 200, 200*time.Millisecond, time.Hour)
	b.Run("bare", func(b *testing.B) { bareLoop(b, server.NewClient(&redis.Options{}), batches) })
	b.Run("engine", func(b *testing.B) {
		s, err := NewSingle(SingleOptions{Address: server.Addr})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		benchEngine(b, s, batches)
	})
}

// BenchmarkWrites is the engine with other actions, on a real Redis, each key once; an operation is a batch of 2000
// keys. "set" is what redis-benchmark would do: the same values without a guard, pipelined by 500.
func BenchmarkWrites(b *testing.B) {
	server := testbed.Redis(b)
	value := `{"id":17,"name":"a product of some length","price":"12.50","stock":4}`
	text, publish := &event.Effect{As: event.FormJSON, TTL: time.Hour}, &event.Effect{Publish: true}
	for name, make := range map[string]func(i int) thing{
		"rebuild": func(i int) thing {
			return thing{fmt.Sprintf("product:%d", i), event.ActionRebuild, event.IntentPut, text, []string{value}}
		},
		"field": func(i int) thing {
			return thing{fmt.Sprintf("hash:%d", i), event.ActionHash, event.IntentPut, &event.Effect{}, []string{"f", value}}
		},
		"publish": func(i int) thing {
			return thing{fmt.Sprintf("told:%d", i), event.ActionDelete, 0, publish, []string{"changes", "17"}}
		},
		"query": func(i int) thing { return query(fmt.Sprintf("asked:%d", i)) },
	} {
		b.Run(name, func(b *testing.B) {
			batches := benchThings(16, make)
			benchEngine(b, single(b, SingleOptions{Address: server.Addr}), batches)
		})
	}
	b.Run("set", func(b *testing.B) {
		client := server.NewClient(&redis.Options{})
		defer func() { _ = client.Close() }()
		for i := range b.N * keysPerBatch / 500 {
			pipe := client.Pipeline()
			for j := range 500 {
				pipe.Set(b.Context(), fmt.Sprintf("bare:%d", (i*500+j)%(16*keysPerBatch)), value, time.Hour)
			}
			if _, err := pipe.Exec(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*keysPerBatch)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
	})
}

// benchThings makes n batches of different things, which everybody has just come to see, and which need one action.
func benchThings(n int, make func(i int) thing) []*event.Batch {
	var batches []*event.Batch
	for i := range n {
		var things []thing
		for j := range keysPerBatch {
			things = append(things, make(i*keysPerBatch+j))
		}
		batches = append(batches, aged(batchOfThings(origin(uint64(4+i), 0), things...), time.Second))
	}
	return batches
}

func bareLoop(b *testing.B, client *redis.Client, batches []*event.Batch) {
	defer func() { _ = client.Close() }()
	b.ReportAllocs()
	b.ResetTimer()
	todo := make(chan *event.Batch, 16)
	var loops sync.WaitGroup
	for range tripsInFlight {
		loops.Go(func() {
			for batch := range todo {
				pipe := client.Pipeline()
				for from := 0; from < batch.Len(); from += commandKeys {
					args := make([]any, 1, commandKeys+1)
					args[0] = "unlink"
					for i := from; i < min(from+commandKeys, batch.Len()); i++ {
						args = append(args, batch.Key(i))
					}
					pipe.Do(b.Context(), args...)
				}
				if _, err := pipe.Exec(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range b.N {
		todo <- batches[i%len(batches)]
	}
	close(todo)
	loops.Wait()
	b.ReportMetric(float64(b.N*keysPerBatch)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
}
