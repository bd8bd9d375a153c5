package invalidator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
)

// twoTapes is a cluster of two nodes. The first has all keys until every so many slots go to the second.
type twoTapes struct {
	nodes [2]*tapeRedis
	every atomic.Int64 // 0: none has moved
}

func (c *twoTapes) String() string { return "two tapes" }

func (c *twoTapes) Release(Redis) {}

func (c *twoTapes) owner(slot uint16) int {
	if every := c.every.Load(); every > 0 && int64(slot)%every == 0 {
		return 1
	}
	return 0
}

func (c *twoTapes) Layout(context.Context) (*Layout, error) {
	l := &Layout{Nodes: []Redis{c.nodes[0], c.nodes[1]}}
	for slot := range l.Owner {
		l.Owner[slot] = int16(c.owner(uint16(slot)))
	}
	return l, nil
}

// answer is what a node says about a key.
func (c *twoTapes) answer(node int, key string) error {
	slot := write.Names{}.Slot(key)
	if has := c.owner(slot); has != node {
		return answerError(fmt.Sprintf("MOVED %d tape:%d", slot, has))
	}
	return nil
}

// Slots move while the first part of a unit is under way, and the rest waits for a writer.
func TestWhatIsPartlySentWhenSlotsMoveIsDoneWholly(t *testing.T) {
	const deleted, written = 13_000, 4000
	for name, every := range map[string]int64{"few": 50, "half": 2} {
		for what, size := range map[string]int{"deletes": deleted, "writes": written} {
			t.Run(name+" slots move, "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &twoTapes{}
					for i := range c.nodes {
						c.nodes[i] = &tapeRedis{
							begin:  time.Now(),
							delay:  func([]string) time.Duration { return 900 * time.Millisecond },
							answer: func(keys []string) error { return c.answer(i, keys[0]) },
							answerCall: func(s sentCall) (any, error) {
								if err := c.answer(i, s.args[3]); err != nil {
									return nil, err
								}
								return int64(1), nil
							},
						}
					}
					log := newFakeLog()
					e := start(t, Deps{Cluster: c, Log: slog.New(slog.DiscardHandler)}, Options{})
					ctx, stop := context.WithCancel(t.Context())
					served := make(chan error, 1)
					go func() { served <- e.Serve(ctx, log) }()
					<-time.After(time.Minute)
					caughtUp(e)

					var b *event.Batch
					var keys []string
					var things []thing
					for i := range size {
						keys = append(keys, fmt.Sprintf("row:%d", i))
						things = append(things, put(keys[i], "v"))
					}
					if b = batchOf(4, 0, keys...); what == "writes" {
						b = batchOfThings(origin(4, 0), things...)
						b.Age = 0
					}
					log.batches <- b
					<-time.After(300 * time.Millisecond)
					synctest.Wait()
					if n := c.sent(what); n == 0 || n == size {
						t.Fatalf("%d of %d keys are sent when the slots move", n, size)
					}
					c.every.Store(every)
					e.readAgain()
					<-time.After(time.Minute)
					synctest.Wait()
					if got := c.sent(what); got != size {
						t.Errorf("%d of %d keys were sent", got, size)
					}
					if log.watermark() != 1 {
						t.Error("the batch is not finished")
					}
					stop()
					testbed.Must(t, <-served)
				})
			})
		}
	}
}

// A node serves some keys of a unit no more. The others have been deleted once, and no more than that: that they come
// after one that strays makes no difference.
func TestWhatStaysWhereOthersStrayHasItsFinalDelete(t *testing.T) {
	for name, strays := range map[string][]bool{
		"the first strays": {true, false}, "the last strays": {false, true}, "all but one stray": {true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &twoTapes{}
				for i := range c.nodes {
					c.nodes[i] = &tapeRedis{
						begin:  time.Now(),
						delay:  func([]string) time.Duration { return time.Millisecond },
						answer: func(keys []string) error { return c.answer(i, keys[0]) },
					}
				}
				log := newFakeLog()
				e := start(t, Deps{Cluster: c, Log: slog.New(slog.DiscardHandler)}, Options{})
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- e.Serve(ctx, log) }()
				<-time.After(time.Minute + 10*time.Millisecond) // the topology is not read in that moment
				caughtUp(e)

				const every, d = 2, time.Second
				var keys []string
				for i := 0; len(keys) < len(strays); i++ {
					key := fmt.Sprintf("row:%d", i)
					if slot := (write.Names{}).Slot(key); slot%every == 0 == strays[len(keys)] {
						keys = append(keys, key)
					}
				}
				c.every.Store(every) // nobody has said so yet
				log.batches <- batchOf(4, d, keys...)
				<-time.After(d / 10)
				e.Mark(markAt(4))
				<-time.After(time.Minute)
				synctest.Wait()
				for i, key := range keys {
					node := c.nodes[0]
					if strays[i] {
						node = c.nodes[1]
					}
					n := 0
					node.set(func() {
						for _, line := range node.tape {
							n += strings.Count(line+" ", " "+key+" ")
						}
					})
					if want := 2; n < want && !strays[i] || n == 0 {
						t.Errorf("%s was deleted %d times, want %d: %v, %v", key, n, want, c.nodes[0].tape, c.nodes[1].tape)
					}
				}
				if log.watermark() != 1 {
					t.Error("the batch is not finished")
				}
				stop()
				testbed.Must(t, <-served)
			})
		})
	}
}

// sent returns to how many keys something was done.
func (c *twoTapes) sent(what string) int {
	keys := map[string]bool{}
	for _, n := range c.nodes {
		n.set(func() {
			tape := n.tape
			if what == "writes" {
				tape = n.calls
			}
			for _, line := range tape {
				for _, w := range strings.Fields(line) {
					if strings.HasPrefix(w, "row:") {
						keys[w] = true
					}
				}
			}
		})
	}
	return len(keys)
}

// A backlog of large batches, which need one delete only, is worked on while slots move from node to node. A limit of
// the rate has most units be partly sent at any moment.
func TestSlotsMoveWhileABacklogIsDeleted(t *testing.T) {
	t.Parallel()
	const batches, size, tags, rate = 40, 4000, 40, 20_000
	c := newLiveClusterWith(t, testbed.ClusterOptions{Masters: 2}, 0, Options{RateLimit: rate})
	key := func(i int) string { return fmt.Sprintf("{%d}:%d", i%tags, i) }
	pipe := c.client.Pipeline()
	for i := range batches * size {
		if pipe.Set(t.Context(), key(i), "old", 0); pipe.Len() == size {
			_, err := pipe.Exec(t.Context())
			testbed.Must(t, err)
		}
	}
	for n := range batches {
		keys := make([]string, size)
		for i := range keys {
			keys[i] = key(n*size + i)
		}
		c.pos++
		c.log.batches <- batchOf(c.pos, 0, keys...)
		c.fetched++
	}
	from, to := c.cluster.Masters[0], c.cluster.Masters[1]
	has := c.cluster.Slots(t, from)
	for tag := range tags {
		if slot := int(write.Names{}.Slot(key(tag))); slices.Contains(has, slot) && c.log.watermark() < batches {
			c.cluster.Move(t, from, to, slot)
		}
	}
	c.caughtUp()
	left := 0
	for i := range batches * size {
		switch err := c.client.Get(t.Context(), key(i)).Err(); {
		case err == nil:
			left++
		case !errors.Is(err, redis.Nil):
			t.Fatal(err)
		}
	}
	if left > 0 {
		t.Errorf("%d keys are left", left)
	}
}
