package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// otherGroup is the site of an invalidator of another group, with a Redis of its own.
func (s *site) otherGroup() *site {
	s.t.Helper()
	o := s.part("invalidator")
	o.group += "-other"
	o.kafka = strings.Replace(o.kafka, s.group, o.group, 1)
	o.redis = testbed.Redis(s.t)
	return o
}

// undoubted waits until nothing is in doubt at any of the sites.
func undoubted(all ...*site) {
	for _, p := range all {
		p.t.Helper()
		p.await("nothing is in doubt", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
	}
}

func TestEachGroupForgetsTheKeysOfATruncatedTableInItsOwnRedis(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source).around(t, testbed.SharedKafka(t))
		reader, a := s.part("reader"), s.part("invalidator")
		b := s.otherGroup()
		for _, p := range []*site{reader, a} {
			p.start(p.role)
		}
		away := b.start("invalidator")
		for _, p := range []*site{reader, a, b} {
			p.awaitFresh()
		}
		others := lookalikes()
		fill := func() {
			for _, p := range []*site{a, b} {
				for _, k := range append(others, "product:1", "product:-2147483648", "product:2147483647") {
					p.cache(k)
				}
			}
		}
		fill()
		load, stop := context.WithCancel(t.Context())
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			for id := 100; load.Err() == nil; id++ {
				s.write(100 + id%50)
			}
		}()
		s.source.Exec(t, "TRUNCATE shop.product")
		for _, p := range []*site{a, b} {
			for _, k := range []string{"product:1", "product:-2147483648", "product:2147483647"} {
				p.gone(k)
			}
		}
		testbed.Eventually(t, patience, "the doubt is gone everywhere", func() bool {
			return !slices.ContainsFunc([]*site{reader, a, b}, func(p *site) bool {
				st := p.status()
				return st == nil || len(st.Doubts) > 0
			})
		})
		stop()
		<-loaded
		undoubted(reader, a, b)
		a.kept(others...)
		b.kept(others...)

		away.Stop(t, patience)
		fill()
		s.source.Exec(t, "TRUNCATE shop.product")
		a.gone("product:1")
		undoubted(a)
		reader.await("it waits for the group that is away", func(st *app.Status) bool {
			return len(st.Doubts) == 1 && strings.HasSuffix(st.Doubts[0].Answer, "not settled yet: group "+b.group)
		})
		if !b.cached("product:1") {
			t.Error("somebody deletes keys in the redis of a group that is away")
		}
		b.start("invalidator")
		b.gone("product:1")
		undoubted(reader, a, b)
		b.kept(others...)
	})
}

func TestAnAnswerOutlivesAKillOfTheInvalidatorThatGivesIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t)).around(t, testbed.SharedKafka(t))
	s.extra = "scope_rate: 100\n"
	reader, first, second := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	reader.start("reader")
	running := map[*site]*testbed.Running{first: first.start("invalidator"), second: second.start("invalidator")}
	of := s.given(first, second)
	const keys = 2000
	for id := range keys {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	s.source.Exec(t, "DROP TABLE shop.product")
	testbed.Eventually(t, patience, "keys are forgotten", func() bool { return s.size() < keys-200 })
	victim, heir := first, second
	if !of[0][0] {
		victim, heir = second, first
	}
	running[victim].Kill9()
	if s.size() < 100 {
		t.Error("all was answered before the kill")
	}
	testbed.Eventually(t, 2*patience, "all keys are forgotten", func() bool { return s.size() == 1 })
	undoubted(reader, heir)
	s.kept("other:1")
}

// The updates wait for their turn when the table is truncated, and write their values after that.
func whatIsWrittenForOlderChangesIsForgottenTooAroundKafka(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, testbed.SharedKafka(t))
	const rows = 100
	s.mappings = `[{table: shop.product, second_delete: 1s, rate_limit: 10, keys: ["product:{id}"],
  rebuild: {from: row, as: json, columns: [id, price]}}]`
	reader, invalidator := s.part("reader"), s.part("invalidator")
	reader.start("reader")
	invalidator.start("invalidator")
	invalidator.awaitFresh()
	var values []string
	for id := range rows {
		values = append(values, fmt.Sprintf("(%d, 1)", id))
	}
	s.source.Exec(t, "INSERT INTO shop.product VALUES "+strings.Join(values, ","), "TRUNCATE shop.product")
	reader.await("something was in doubt", func(st *app.Status) bool { return len(st.Alarms) > 0 })
	undoubted(reader, invalidator)
	invalidator.await("all is finished", func(st *app.Status) bool { return st.InFlight+st.Pending == 0 })
	for id := range rows {
		if key := fmt.Sprintf("product:%d", id); s.cached(key) {
			t.Errorf("%s is cached", key)
		}
	}
}

func keysAreForgottenByHandAroundKafka(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
	reader, a := s.part("reader"), s.part("invalidator")
	b := s.otherGroup()
	reading := reader.start("reader")
	for _, p := range []*site{a, b} {
		p.start("invalidator")
		p.awaitFresh()
	}
	reader.awaitFresh()
	others := lookalikes()
	for _, p := range []*site{a, b} {
		for _, k := range append(others, "product:1", "product:2", "stray") {
			p.cache(k)
		}
	}
	lines := slices.Sorted(strings.Lines(a.ask("invalidate", "--all", "--dry-run")))
	if got := strings.Join(lines, ""); got != "  \"product:1\"\n  \"product:2\"\n  2 of shop.product\n"+
		"for example\nwould forget 2 keys\n" {
		t.Errorf("a dry run: %s", got)
	}
	if out := a.ask("invalidate", "product:1", "stray"); out != "forgot 2 keys\n" {
		t.Errorf("by name: %s", out)
	}
	if a.cached("product:1") || a.cached("stray") {
		t.Error("keys that were named are cached")
	}
	a.kept(append(others, "product:2")...)
	a.ask("invalidate", "--table", "shop.product", "--wait")
	if a.cached("product:2") {
		t.Error("product:2 is cached")
	}
	a.kept(others...)
	b.kept(append(others, "product:1", "product:2", "stray")...)
	undoubted(reader, a, b)
	a.refused(exitUsage, []string{"shop.review"}, "invalidate", "--table", "shop.review")
	for _, words := range [][]string{{"warm"}, {"invalidate", "--where", "1"}} {
		a.refused(exitFailed, []string{"write source, as the reader's file has it"},
			append(words, "--table", "shop.product")...)
	}
	for _, words := range [][]string{{"--all"}, {"product:1"}} {
		reader.refused(exitFailed, []string{"ask an invalidator"}, append([]string{"invalidate"}, words...)...)
	}
	reader.refused(exitFailed, []string{"ask an invalidator"}, "invalidate", "--all", "--dry-run")

	// What freshet does not answer by itself is answered by every group, wherever that was asked.
	reading.Stop(t, patience)
	a.cache("price:1")
	b.cache("price:1")
	reader.keys = append(reader.keys, "price:{price}")
	reader.start("reader")
	for _, p := range []*site{a, b} {
		p.await("the mappings are in doubt", func(st *app.Status) bool { return len(st.Doubts) == 1 })
	}
	id := a.status().Doubts[0].ID
	a.ask("doubts", "answer", id)
	for _, p := range []*site{a, b} {
		p.gone("price:1")
	}
	undoubted(reader, a, b)
}

// What an operator has removed the reason of is asked for again, and that may be at a process that does not answer it.
func TestAnAnswerIsAskedForAgainWhereverThatIs(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t)).around(t, testbed.SharedKafka(t))
	s.source.Exec(t, "ALTER TABLE shop.product ADD name VARCHAR(20)")
	s.mappings = "[{table: shop.product, keys: ['product:{id}', 'named:{name}']}]"
	reader, first, second := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	reading := reader.start("reader")
	first.start("invalidator")
	second.start("invalidator")
	s.given(first, second)
	s.cache("product:1")
	s.cache("named:a")
	s.source.Exec(t, "TRUNCATE shop.product")
	s.gone("product:1")
	for _, p := range []*site{reader, first, second} {
		p.await("all say that it is stuck", func(st *app.Status) bool { return len(st.Doubts) == 1 && st.Doubts[0].Stuck })
	}
	id := reader.status().Doubts[0].ID
	for _, p := range []*site{reader, first, second} {
		p.refused(exitFailed, []string{"cannot be answered", "named:{name}"}, "doubts", "answer", id, "--wait")
	}
	reading.Stop(t, patience)
	reader.mappings = "[{table: shop.product, keys: ['product:{id}', 'named:{name}'], scope: {name: '[a-z]+'}}]"
	reader.start("reader")
	reader.await("it reads", func(st *app.Status) bool { return st.Source.Connected })
	reader.ask("doubts", "answer", id, "--wait")
	s.gone("named:a")
}

// awaitDoubts waits until so many are listed.
func (s *site) awaitDoubts(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d doubts", n), func(st *app.Status) bool { return len(st.Doubts) == n })
}

// While the member was stopped the doubt has ended, and has come again.
func TestAMemberThatWasStoppedSettlesTheDoubtThatThereIsNow(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t)).around(t, testbed.SharedKafka(t))
	reader, first, second := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	reader.start("reader")
	running := map[*site]*testbed.Running{first: first.start("invalidator"), second: second.start("invalidator")}
	of := s.given(first, second)
	answers, other := first, second
	if !of[0][0] {
		answers, other = second, first
	}
	s.cache("product:1")
	running[other].Signal(syscall.SIGSTOP)
	s.source.Exec(t, "TRUNCATE shop.product")
	s.gone("product:1")
	undoubted(reader, answers)
	running[answers].Kill9()
	s.cache("product:1")
	s.source.Exec(t, "TRUNCATE shop.product")
	reader.awaitDoubts(1)
	running[other].Signal(syscall.SIGCONT)
	s.gone("product:1")
	undoubted(reader, other)
}

// As docs/kafka.md says it.
func TestNobodyWaitsForASourceThatWasRemoved(t *testing.T) {
	t.Parallel()
	cluster := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t)).around(t, cluster)
	reader, removed, invalidator := s.part("reader"), s.part("reader"), s.part("invalidator")
	removed.env = append(removed.env, "FRESHET_SOURCE_NAME=old")
	reader.start("reader")
	old := removed.start("reader")
	first := invalidator.start("invalidator")
	for _, p := range []*site{reader, removed, invalidator} {
		p.awaitFresh()
	}
	old.Stop(t, patience)
	first.Stop(t, patience)
	for topic, key := range map[string]string{".marks": "old", ".doubts": "fact/mappings/old"} {
		s.produceTo(cluster, s.topic+topic, 0, kafka.Record{Key: kafka.NewBytes([]byte(key))})
	}
	cluster.DeleteTopic(t, s.topic+".checkpoint.old")
	invalidator.start("invalidator")
	invalidator.awaitFresh()
	s.cache("product:1")
	invalidator.ask("invalidate", "--all", "--wait")
	s.nothingCached()
}

// The place that the doubt is about is one in the binlog of the server that is gone.
func TestTheSourceFailsOverWhileADoubtIsAnswered(t *testing.T) {
	t.Parallel()
	for what, answering := range testbed.SomeOf(t, map[string]bool{
		"the group answers": true, "the group is down": false,
	}) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			first, second := testbed.MySQL(t), testbed.MySQL(t)
			second.Follow(t, first)
			s := newSite(t, first).around(t, testbed.SharedKafka(t))
			s.extra = "scope_rate: 100\n"
			reader, a := s.part("reader"), s.part("invalidator")
			reading, invalidating := reader.start("reader"), a.start("invalidator")
			reader.awaitFresh()
			a.awaitFresh()
			const keys = 1000
			for id := range keys {
				s.cache(fmt.Sprintf("product:%d", id))
			}
			s.cache("other:1")
			if !answering {
				invalidating.Stop(t, patience)
			}
			s.source.Exec(t, "TRUNCATE shop.product")
			reader.awaitDoubts(1)
			if answering {
				testbed.Eventually(t, patience, "keys are forgotten", func() bool { return s.size() < keys-100 })
			}
			reading.Kill9()
			testbed.Eventually(t, patience, "the replica has all", func() bool { return second.GTIDs(t) == first.GTIDs(t) })
			second.Exec(t, "STOP REPLICA", "RESET REPLICA ALL")
			testbed.Must(t, first.Kill())
			s.source, reader.source = second, second
			reader.start("reader")
			if !answering {
				a.start("invalidator")
			}
			s.write(1)
			undoubted(reader, a)
			if n := s.size(); n != 1 {
				t.Errorf("%d keys are cached", n)
			}
		})
	}
}

// As docs/kafka.md says it.
func TestNobodyWaitsForAGroupThatWasRemoved(t *testing.T) {
	t.Parallel()
	cluster := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t)).around(t, cluster)
	reader, a, removed := s.part("reader"), s.part("invalidator"), s.otherGroup()
	running := map[*site]*testbed.Running{}
	for _, p := range []*site{reader, a, removed} {
		running[p] = p.start(p.role)
		p.awaitFresh()
	}
	running[removed].Stop(t, patience)
	s.source.Exec(t, "TRUNCATE shop.product")
	reader.await("it waits for the group", func(st *app.Status) bool {
		return len(st.Doubts) == 1 && strings.HasSuffix(st.Doubts[0].Answer, "not settled yet: group "+removed.group)
	})
	for _, fact := range []string{"group", "redis"} {
		key := kafka.NewBytes([]byte("fact/" + fact + "/" + removed.group))
		s.produceTo(cluster, s.topic+".doubts", 0, kafka.Record{Key: key})
	}
	undoubted(reader, a)
}

// Where no freshet was asked, others of the group may run, and answer.
func TestWithKafkaItIsNotSaidThatNoFreshetRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t)).around(t, testbed.SharedKafka(t))
	reader, invalidator, elsewhere := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	reader.start("reader")
	invalidator.start("invalidator")
	reader.awaitFresh()
	invalidator.awaitFresh()
	invalidator.cache("product:1")
	out := elsewhere.ask("invalidate", "--table", "shop.product")
	if !strings.Contains(out, " is kept in Kafka: the invalidators of group "+s.group+" answer it once they run\n") {
		t.Error(out)
	}
	invalidator.gone("product:1")
	elsewhere.refused(exitFailed, []string{"no freshet was asked, so none can be waited for", "kept in Kafka"},
		"invalidate", "--all", "--wait")
	undoubted(reader, invalidator)
}

// A reader begins where its checkpoint in Kafka is, and before there is one at source.start.
func TestCheckTriesWhereAReaderWouldBegin(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, testbed.SharedKafka(t)).part("reader")
	check := func(want string) {
		t.Helper()
		r := s.start("check")
		r.Wait(t, patience)
		if !strings.Contains(r.Stdout(), want) {
			t.Errorf("want %q in\n%s", want, r.Stdout())
		}
	}
	check("ok    there is no checkpoint yet: freshet would begin at ")
	s.caughtUp()
	check("ok    the source has what follows the checkpoint ")
	s.write(1)
	s.source.PurgeBinlogs(t)
	check("fail  position lost: the source has purged binlogs with transactions that were not read")
}
