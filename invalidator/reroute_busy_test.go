package invalidator

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// slowRows is a [Rebuilder] whose queries for rows take long, and all others take no time.
type slowRows time.Duration

// Query implements [Rebuilder].
func (r slowRows) Query(_ context.Context, _, _ string, params []event.Fields, _ *event.GTIDSet,
	answer func(int, event.Fields, bool, error) bool,
) {
	for i := range params {
		if key, _, _ := params[i].Next(); strings.HasPrefix(string(key), "row:") {
			<-time.After(time.Duration(r))
		}
		if !answer(i, event.AppendField(nil, "the row"), false, nil) {
			return
		}
	}
}

// Slots go to another node while the final actions of a unit are under way, and come back. Then these do not count, and
// are done once more, after those of newer changes. There are always some.
func TestWhatIsUnderWayWhenSlotsMoveIsFinishedWhileChangesGoOn(t *testing.T) {
	const size, d, hangs = 2, time.Second, 2 * time.Second
	for what, of := range map[string]func(pos uint64, keys ...string) *event.Batch{
		"deletes": func(pos uint64, keys ...string) *event.Batch { return batchOf(pos, d, keys...) },
		"writes": func(pos uint64, keys ...string) *event.Batch {
			var things []thing
			for _, key := range keys {
				things = append(things, put(key, "v"))
			}
			return batchOfThings(origin(pos, d), things...)
		},
		"queries": func(pos uint64, keys ...string) *event.Batch {
			var things []thing
			for _, key := range keys {
				things = append(things, query(key))
			}
			return batchOfThings(origin(pos, d), things...)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &twoTapes{}
				var hang atomic.Int64 // until when the nodes answer nothing, in Unix ns
				takes := func() time.Duration { return max(time.Until(time.Unix(0, hang.Load())), time.Millisecond) }
				for i := range c.nodes {
					c.nodes[i] = &tapeRedis{
						begin: time.Now(), delay: func([]string) time.Duration { return takes() },
					}
				}
				log := newFakeLog()
				e := start(t, Deps{Cluster: c, Rebuilder: slowRows(hangs), Log: slog.New(slog.DiscardHandler)}, Options{})
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- e.Serve(ctx, log) }()
				<-time.After(time.Minute + d/100) // the topology is not read in that moment
				caughtUp(e)

				var keys []string
				for i := range size {
					keys = append(keys, fmt.Sprintf("row:%d", i))
				}
				const first = 4
				log.batches <- of(first, keys...)
				e.Mark(markAt(first))
				move := func(every int64) {
					<-time.After(d / 10)
					c.every.Store(every)
					e.readAgain()
				}
				moved := make(chan struct{})
				go func() {
					defer close(moved)
					if what == "queries" {
						<-time.After(hangs + d + d/10) // the first ones are over, and the final ones are under way
					} else {
						<-time.After(d - d/100) // the final ones are about to be sent
						hang.Store(time.Now().Add(hangs).UnixNano())
					}
					move(2)
					move(0)
				}()
				for i := range uint64(1000) {
					log.batches <- of(first+1+i, fmt.Sprintf("other:%d", i))
					if i%5 == 0 {
						e.Mark(markAt(first + 1 + i))
					}
					<-time.After(d / 50)
				}
				if log.watermark() < 1 {
					t.Errorf("not finished %s after its slots have moved", 15*d)
				}
				<-moved
				stop()
				testbed.Must(t, <-served)
			})
		})
	}
}
