package proxy_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// through starts Redis, a logging proxy, and a client that goes through it.
func through(t *testing.T, protocol int) (*testbed.RedisServer, *proxy.RESP, *redis.Client) {
	t.Helper()
	s := testbed.Redis(t)
	p := proxy.StartRESP(t, s.Addr)
	c := s.NewClient(&redis.Options{Addr: p.Addr(), Protocol: protocol, ReadTimeout: 20 * time.Second})
	t.Cleanup(func() { c.Close() })
	return s, p, c
}

func TestAcksFollowReplies(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			s, p, c := through(t, protocol)
			ctx := t.Context()
			before := time.Now()
			testbed.Must(t, c.Set(ctx, "a", "1", 0).Err())
			testbed.Must(t, c.Unlink(ctx, "a", "b").Err())
			after := time.Now()
			acks := p.Acks("a")
			if len(acks) != 2 || acks[0].Command != "SET" || acks[1].Command != "UNLINK" {
				t.Fatalf("acks of a: %+v", acks)
			}
			last := before
			for _, a := range acks {
				if a.Sent.Before(last) || a.Acked.Before(a.Sent) || a.Acked.After(after) || a.Err != "" {
					t.Fatalf("times are out of order: %+v", acks)
				}
				last = a.Acked
			}
			if got := p.Acks("b"); len(got) != 1 || got[0].Acked.IsZero() {
				t.Fatalf("acks of b: %+v", got)
			}
			testbed.Must(t, s.Pause())
			done := make(chan error, 1)
			go func() { done <- c.Unlink(ctx, "late").Err() }()
			testbed.Eventually(t, 2*time.Minute, "the command is sent", func() bool { return len(p.Acks("late")) == 1 })
			if a := p.Acks("late")[0]; !a.Acked.IsZero() {
				t.Fatalf("acknowledged by a server that is paused: %+v", a)
			}
			testbed.Must(t, s.Resume())
			testbed.Must(t, <-done)
			testbed.Eventually(t, 2*time.Minute, "the reply is noted", func() bool { return !p.Acks("late")[0].Acked.IsZero() })
		})
	}
}

func TestErrorsAreNotedPerCommand(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		_, p, c := through(t, protocol)
		ctx := t.Context()
		testbed.Must(t, c.Set(ctx, "s", "1", 0).Err())
		pipe := c.Pipeline()
		pipe.HSet(ctx, "s", "f", "v")
		pipe.Unlink(ctx, "x")
		pipe.Eval(ctx, "return redis.call('hset', KEYS[1], 'f', 'v')", []string{"s"})
		_, err := pipe.Exec(ctx)
		if err == nil {
			t.Fatal("HSET on a string succeeded")
		}
		acks := p.Acks("s")
		if len(acks) != 3 || acks[0].Err != "" || acks[1].Err == "" || acks[2].Err == "" {
			t.Fatalf("acks of s: %+v", acks)
		}
		if a := p.Acks("x"); len(a) != 1 || a[0].Err != "" {
			t.Fatalf("acks of x: %+v", a)
		}
		if got := p.Totals(); got != (proxy.Totals{Writes: 4, Acked: 2, Failed: 2}) {
			t.Fatalf("totals %+v", got)
		}
	}
}

func TestTransactionIsAcknowledgedByExec(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		_, p, c := through(t, protocol)
		ctx := t.Context()
		testbed.Must(t, c.Set(ctx, "s", "1", 0).Err())
		p.Forget()
		_, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "k", "v", 0)
			pipe.Ping(ctx)
			pipe.HSet(ctx, "s", "f", "v")
			return nil
		})
		if err == nil {
			t.Fatal("HSET on a string succeeded")
		}
		if a := p.Acks("k"); len(a) != 1 || a[0].Err != "" || a[0].Acked.IsZero() {
			t.Fatalf("acks of k: %+v", a)
		}
		if a := p.Acks("s"); len(a) != 1 || a[0].Err == "" {
			t.Fatalf("acks of s: %+v", a)
		}
	}
}

func TestLostReplyTookEffect(t *testing.T) {
	s, p, c := through(t, 3)
	ctx := t.Context()
	s.Do(t, "mset", "a", "1", "b", "1", "c", "1")
	p.OnCommand(func(cmd proxy.Command) proxy.Action {
		switch cmd.N {
		case 2:
			return proxy.DropReply
		case 4:
			return proxy.DropCommand
		}
		return proxy.Forward
	})
	testbed.Must(t, c.Unlink(ctx, "a").Err())
	if err := c.Unlink(ctx, "b").Err(); err == nil {
		t.Fatal("the lost reply arrived")
	}
	if n := s.Do(t, "exists", "b"); n != int64(0) {
		t.Fatal("the command whose reply was lost took no effect")
	}
	if a := p.Acks("b"); len(a) != 1 || !a[0].Acked.IsZero() {
		t.Fatalf("acks of b: %+v", a)
	}
	testbed.Must(t, c.Unlink(ctx, "b").Err())
	if err := c.Unlink(ctx, "c").Err(); err == nil {
		t.Fatal("the dropped command was answered")
	}
	if n := s.Do(t, "exists", "c"); n != int64(1) || len(p.Acks("c")) != 0 {
		t.Fatal("the dropped command arrived")
	}
}

func TestRepliesBeforeALostOnePass(t *testing.T) {
	s, p, c := through(t, 2)
	ctx := t.Context()
	s.Do(t, "mset", "a", "1", "b", "1", "c", "1")
	p.OnCommand(func(cmd proxy.Command) proxy.Action {
		if cmd.Keys[0] == "b" {
			return proxy.DropReply
		}
		return proxy.Forward
	})
	pipe := c.Pipeline()
	a, b := pipe.Unlink(ctx, "a"), pipe.Unlink(ctx, "b")
	pipe.Unlink(ctx, "c")
	if _, err := pipe.Exec(ctx); err == nil {
		t.Fatal("the lost reply arrived")
	}
	if a.Val() != 1 || b.Val() != 0 {
		t.Fatalf("replies %v and %v", a, b)
	}
	if p.Acks("a")[0].Acked.IsZero() || !p.Acks("b")[0].Acked.IsZero() || !p.Acks("c")[0].Acked.IsZero() {
		t.Fatalf("acks %+v %+v %+v", p.Acks("a"), p.Acks("b"), p.Acks("c"))
	}
}

func TestSubscriptionsPassUnread(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		s, _, c := through(t, protocol)
		sub := c.Subscribe(t.Context(), "news")
		_, err := sub.Receive(t.Context()) // the confirmation
		testbed.Must(t, err)
		s.Do(t, "publish", "news", "one")
		m, err := sub.ReceiveMessage(t.Context())
		testbed.Must(t, err)
		if m.Payload != "one" {
			t.Fatalf("got %v", m)
		}
		testbed.Must(t, sub.Close())
	}
}

func TestBigValuesAndRepliesPass(t *testing.T) {
	_, p, c := through(t, 3)
	ctx := t.Context()
	big := string(make([]byte, 3<<20))
	testbed.Must(t, c.Set(ctx, "big", big, 0).Err())
	got, err := c.Get(ctx, "big").Result()
	testbed.Must(t, err)
	if got != big || len(p.Acks("big")) != 2 {
		t.Fatalf("%d bytes came back, %d acks", len(got), len(p.Acks("big")))
	}
}

// BenchmarkUnlinkThroughProxy shows how many keys per second pass, in commands of 100 keys and
// in pipelines of single keys.
func BenchmarkUnlinkThroughProxy(b *testing.B) {
	for _, perCommand := range []int{1, 100} {
		b.Run(strconv.Itoa(perCommand), func(b *testing.B) {
			s := testbed.Redis(b)
			p := proxy.StartRESP(b, s.Addr)
			c := s.NewClient(&redis.Options{Addr: p.Addr()})
			defer c.Close()
			keys := 0
			for b.Loop() {
				pipe := c.Pipeline()
				for range 1000 / perCommand {
					batch := make([]string, perCommand)
					for i := range batch {
						batch[i] = "product:" + strconv.Itoa(keys%200_000)
						keys++
					}
					pipe.Unlink(b.Context(), batch...)
				}
				if _, err := pipe.Exec(b.Context()); err != nil {
					b.Fatal(err)
				}
				if keys%1_000_000 == 0 {
					p.Forget()
				}
			}
			b.ReportMetric(float64(keys)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
