package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// calm is how many rows nobody changes. They are cached from the beginning, and no reader caches them again.
const calm = 300

// lossy is a load around Kafka whose topic loses records of some partitions that no invalidator has read. Two groups of
// invalidators have the same load and the same losses: one answers them, the other passes them over.
type lossy struct {
	*load
	fleet *fleet
	rnd   *rand.Rand
	// answering and passing are the invalidators, with a Redis each; others is the load of readers of the second Redis.
	answering, passing *rig
	others             *load
	// spreads are the numbers of partitions that there were, and lost the partitions of which records were.
	spreads, lost []int
	since         time.Time // when the last records were lost
}

// Retention deletes records of some partitions under load, again and again, while the invalidators are down; once,
// partitions are added meanwhile. In the end no key is stale, not even those of rows that are gone; and the keys that
// no lost record can have been about are still cached.
//
// What shows that the test can fail is a group that goes on with --skip-lost, and nobody clears its cache.
func TestRecordsThatAreLostUnderLoadLeaveNoKeyStale(t *testing.T) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		s := newLossy(t, start(t), testbed.Seeded(t).Uint64())
		s.run(testbed.Cut(1, 8))
		s.settle()
	})
}

func newLossy(t *testing.T, source *testbed.Server, seed uint64) *lossy {
	t.Helper()
	f := newFleet(t, source, testbed.SharedKafka(t), 1, 0)
	crowded(f.source)
	f.source.Exec(t, schema...)
	s := &lossy{fleet: f, rnd: rand.New(rand.NewPCG(seed, 2)), spreads: []int{f.partitions}}
	// An answer takes a second or more, so that the next loss can come meanwhile.
	s.answering = s.group("answering", fmt.Sprintf("on_gap: invalidate\nscope_rate: %d", testbed.Cut(1000, 5000)))
	s.passing = s.group("passing", "")
	f.readers[0].launch("reader")
	s.answering.launch("invalidator")
	s.passing.launch("invalidator", "--skip-lost")
	f.invalidators = []*rig{s.answering, s.passing}
	s.finish()
	f.redis = s.answering.redis
	s.load, s.others = &load{r: f.rig}, &load{r: s.passing}
	s.load.start(testbed.Cut(2, 4), testbed.Cut(6, 24), seed)
	s.others.fill(testbed.Cut(6, 24), seed+1)
	t.Cleanup(func() { _ = s.others.readers.stop() })
	return s
}

// group prepares an invalidator of a group of its own, with a Redis of its own.
func (s *lossy) group(name, more string) *rig {
	f := s.fleet
	f.t.Helper()
	m := f.prepare("invalidator", name)
	m.redis = testbed.Redis(f.t)
	m.resp = proxy.StartRESP(f.t, m.redis.Addr)
	m.write(f.inKafka(name+f.topic[len(f.topic)-8:]), m.toRedis(), more)
	return m
}

// finish waits until all that is committed now is finished in both groups.
func (s *lossy) finish() {
	s.fleet.t.Helper()
	for _, m := range s.fleet.members() {
		m.finish(3 * time.Minute)
	}
}

// run has records lost so many times.
func (s *lossy) run(rounds int) {
	f := s.fleet
	f.t.Helper()
	s.doom(rounds)
	f.source.Exec(f.t, "INSERT INTO shop.product (id, category_id, name) SELECT id + 1000000, -1, 'calm' FROM shop.product "+
		fmt.Sprintf("WHERE id <= %d", calm))
	s.finish()
	for _, l := range []*load{s.load, s.others} {
		l.cacheRows(calmFrom, calm)
	}
	for n := range rounds {
		s.finish()
		from := products + 1 + n*doomed
		s.load.cache(from)
		s.others.cache(from)
		s.kill()
		s.remove(from)
		if n == rounds/2 {
			f.partitions++
			f.kafka.AddPartitions(f.t, f.topic, f.partitions)
			s.spreads = append(s.spreads, f.partitions)
		}
		f.readers[0].finish(3 * time.Minute)
		s.lose()
		s.goOn()
		if s.rnd.IntN(2) == 0 {
			s.awaitAnswer()
		}
	}
}

// calmFrom is the first of the rows that nobody changes.
const calmFrom = 1_000_001

// kill kills both invalidators at any moment.
func (s *lossy) kill() {
	s.fleet.t.Helper()
	<-time.After(time.Duration(s.rnd.IntN(500)) * time.Millisecond)
	s.answering.kill()
	s.passing.kill()
}

// lose deletes all that one partition holds, or two.
func (s *lossy) lose() {
	f := s.fleet
	f.t.Helper()
	s.since = time.Now()
	for _, p := range s.rnd.Perm(s.spreads[0])[:1+s.rnd.IntN(2)] {
		f.kafka.DeleteRecords(f.t, f.topic, p, -1)
		s.lost = append(s.lost, p)
	}
}

// goOn starts the invalidators, and waits until both have seen that records are lost.
func (s *lossy) goOn() {
	s.fleet.t.Helper()
	s.answering.launch("invalidator")
	s.passing.launch("invalidator", "--skip-lost")
	for _, m := range []*rig{s.answering, s.passing} {
		m.awaitAlarm("records_lost", s.since)
	}
}

// awaitAnswer waits until nothing is in doubt any more where that is answered.
func (s *lossy) awaitAnswer() {
	s.fleet.t.Helper()
	s.answering.await("answer what is in doubt", 3*time.Minute, func(st status) bool { return len(st.Doubts) == 0 })
}

// settle ends the load, and looks at both Redis.
func (s *lossy) settle() {
	f, t := s.fleet, s.fleet.t
	t.Helper()
	testbed.Must(t, s.writers.stop())
	s.finish()
	s.awaitAnswer()
	s.stop()
	testbed.Must(t, s.others.readers.stop())
	with, without := s.answering.compareCache(), s.passing.compareCache()
	t.Logf("with the answer %s; without it %s", with, without)
	with.verify(t)
	if len(without.stale) == 0 || without.gone == 0 {
		t.Error("without the answer nothing is stale either, so nothing is shown")
	}
	s.lookAtTheCalm()
	if said := s.answering.proc.stderr.String(); strings.Contains(said, "of any partition") {
		t.Errorf("keys of all partitions were forgotten:\n%s", tail(said))
	}
	f.stop()
}

// lookAtTheCalm checks that of the rows that nobody has changed, those keys are cached that no lost record can have
// been about, by any number of partitions that there was, and no others.
func (s *lossy) lookAtTheCalm() {
	t := s.fleet.t
	t.Helper()
	stay, wrong := 0, 0
	for id := calmFrom; id < calmFrom+calm; id++ {
		key := fmt.Sprintf("product:%d", id)
		lost := slices.ContainsFunc(s.spreads, func(n int) bool {
			return slices.Contains(s.lost, partitionOf(key, n))
		})
		cached, err := s.answering.redis.Client().Exists(t.Context(), key).Result()
		testbed.Must(t, err)
		if (cached == 1) == lost {
			wrong++
		}
		if !lost {
			stay++
		}
	}
	t.Logf("records of the partitions %v of %v were lost: %d of %d keys of rows that nobody changed are of others", s.lost,
		s.spreads, stay, calm)
	if wrong > 0 {
		t.Errorf("%d of them are forgotten although they are of others, or cached although they are not", wrong)
	}
	if stay == 0 || stay == calm {
		t.Error("all or none had to stay cached, so nothing is shown")
	}
}

// partitionOf returns the partition that Kafka's own clients choose for a key.
func partitionOf(key string, partitions int) int {
	var all []int
	for p := range partitions {
		all = append(all, p)
	}
	return kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: []byte(key)}, all...)
}
