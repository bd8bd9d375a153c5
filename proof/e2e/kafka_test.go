package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// insert writes products first to last and a note for the first of them, in one transaction.
func insert(r *rig, j *journal, first, last int) {
	r.t.Helper()
	testbed.Must(r.t, j.transact(context.Background(), r.source.DB(), begin, commit, func(x *tx) error {
		for id := first; id <= last; id++ {
			if err := x.change("shop.product", fmt.Sprintf("id = %d", id),
				fmt.Sprintf("INSERT INTO shop.product (id, category_id, name) VALUES (%d, %d, 'p') ON DUPLICATE KEY UPDATE "+
					"version = version + 1", id, id%10)); err != nil {
				return err
			}
		}
		return x.change("shop.note", fmt.Sprintf("id = %d", first),
			fmt.Sprintf("REPLACE INTO shop.note VALUES (%d, 'n')", first))
	}))
}

// region prepares an invalidator of a group of its own, which talks to another Redis, through a proxy of its own.
func (f *fleet) region(name string) *rig {
	f.t.Helper()
	m := f.prepare("invalidator", name)
	m.redis = testbed.Redis(f.t)
	m.resp = proxy.StartRESP(f.t, m.redis.Addr)
	m.write(f.inKafka(name+f.topic[len(f.topic)-8:]), m.toRedis(),
		"retry: {max_attempts: 2, park_after: 1, park_delays: [1s], min_backoff: 10ms}")
	return m
}

// One topic feeds the Redis of two regions. Each group has offsets, parked keys and dead letters of its own, and waits
// for its own Redis alone.
func TestEachGroupOfInvalidatorsWaitsForItsOwnRedisAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.MySQL(t), testbed.SharedKafka(t), 1, 0)
	f.source.Exec(t, schema...)
	east, west, reader := f.region("east"), f.region("west"), f.readers[0]
	east.withoutToken()
	for _, m := range []*rig{reader, east, west} {
		m.launch(m.role)
	}
	var j journal
	both := func() {
		t.Helper()
		for _, m := range []*rig{east, west} {
			m.finish(3 * time.Minute)
			j.verify(m, time.Time{})
		}
	}
	reader.finish(3 * time.Minute) // what is committed before is not its business
	insert(f.rig, &j, 1, 20)
	both()

	// One Redis hangs: the other one's cache stays fresh.
	testbed.Must(t, east.redis.Pause())
	insert(f.rig, &j, 11, 30)
	west.finish(3 * time.Minute)
	j.verify(west, time.Time{})
	east.await("it waits for its Redis", 3*time.Minute, func(s status) bool {
		return s.State == "behind" && strings.Contains(s.Sentence, east.resp.Addr())
	})
	west.await("it is fresh", 3*time.Minute, func(s status) bool { return s.State == "fresh" })
	testbed.Must(t, east.redis.Resume())
	both()

	// One group is stopped, and goes on from where it was.
	east.stop()
	insert(f.rig, &j, 21, 40)
	west.finish(3 * time.Minute)
	j.verify(west, time.Time{})
	east.launch(east.role)
	both()

	// One Redis refuses keys: its group alone parks them and gives them up.
	east.redis.Do(t, "ACL", "SETUSER", "default", "resetkeys", "~product:*", "~category:*")
	insert(f.rig, &j, 31, 50)
	west.finish(3 * time.Minute)
	j.verify(west, time.Time{})
	east.await("it has given a key up", 3*time.Minute,
		func(s status) bool { return s.DeadLetters == 1 && s.Parked == 0 && s.State == "doubtful" })
	west.await("it knows nothing of that", 3*time.Minute,
		func(s status) bool { return s.DeadLetters == 0 && s.Parked == 0 && s.State == "fresh" })
	if out, code := west.ask("dlq", "list"); code != 0 || strings.Contains(out, "note:") {
		t.Errorf("dlq list of the other group: %d\n%s", code, out)
	}
	out, code := east.ask("dlq", "list")
	if code != 0 || strings.Count(out, "note:31") != 1 || !strings.Contains(out, "NOPERM") {
		t.Errorf("dlq list: %d\n%s", code, out)
	}
	east.redis.Do(t, "ACL", "SETUSER", "default", "allkeys")
	if out, code := east.ask("dlq", "replay", "--all"); code != 1 || !strings.Contains(out, "admin.token") {
		t.Errorf("dlq replay without a token: %d\n%s", code, out)
	}
	east.stop()
	if out, code := east.ask("dlq", "replay", "--all"); code != 0 || !strings.Contains(out, "replayed 1 dead letters") {
		t.Errorf("dlq replay: %d\n%s", code, out)
	}
	east.launch(east.role)
	// A parked key is not counted before it has been read.
	testbed.Eventually(t, 2*time.Minute, "the replayed key is deleted", func() bool {
		return slices.ContainsFunc(east.resp.Acks("note:31"),
			func(a proxy.Ack) bool { return a.Err == "" && !a.Acked.IsZero() })
	})
	east.await("nothing is in trouble", 3*time.Minute,
		func(s status) bool { return s.DeadLetters == 0 && s.Parked == 0 && s.State == "fresh" })
	both()
	for _, m := range []*rig{reader, east, west} {
		m.stop()
	}
}

// Two sources write to one topic, each through its own reader. When one of the readers is gone, the other source's
// changes go on, and nobody claims that the cache is as fresh as if both did.
func TestSourcesShareATopicAndFailApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.MySQL(t), testbed.SharedKafka(t), 0, 2)
	g := *f.rig
	g.source = testbed.MariaDB(t)
	g.mayRead("shop.*")
	g.binlog = proxy.StartBinlog(t, g.source.Addr)
	var journals [2]journal
	for i, r := range []*rig{f.rig, &g} {
		r.source.Exec(t, schema...)
		m := f.prepare("reader", fmt.Sprintf("shard-%d", i))
		m.source, m.binlog = r.source, r.binlog
		m.write(f.inKafka("unused"), m.fromSource(fmt.Sprintf("shard-%d", i)))
		f.readers = append(f.readers, m)
	}
	for _, m := range f.members() {
		m.launch(m.role)
	}
	connected := func(s []status) bool { return s[0].Source.Connected && s[1].Source.Connected }
	f.awaitAll("both sources are read", 3*time.Minute, func(readers, invalidators []status) bool {
		return connected(readers) && len(partitionsOf(invalidators)) == f.partitions
	})
	insert(f.rig, &journals[0], 1, 20)
	insert(&g, &journals[1], 1001, 1020)
	f.finish(3 * time.Minute)

	gone := f.readers[0]
	gone.kill()
	f.readers = f.readers[1:]
	insert(f.rig, &journals[0], 11, 30)
	unread := time.Now()
	insert(&g, &journals[1], 1011, 1030)
	testbed.Eventually(t, 2*time.Minute, "what the other source changed is deleted", func() bool {
		a := f.resp.Acks("product:1030")
		return len(a) > 1 && !a[len(a)-1].Acked.IsZero()
	})
	f.awaitAll("nobody claims to be fresh", 3*time.Minute, func(_, invalidators []status) bool {
		for _, s := range invalidators {
			if s.FreshAsOf.After(unread) {
				t.Fatalf("fresh as of %s although what was committed before %s was never read", s.FreshAsOf, unread)
			}
			if s.State != "behind" {
				return false
			}
		}
		return true
	})
	if a := f.resp.Acks("product:30"); len(a) > 0 {
		t.Errorf("a change was acted on that nobody has read: %+v", a)
	}
	gone.launch(gone.role)
	f.readers = append(f.readers, gone)
	f.finish(3 * time.Minute)
	for i := range journals {
		journals[i].verify(f.rig, time.Time{})
	}
	f.stop()
}
