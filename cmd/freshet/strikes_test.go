package main

import (
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// struck is a site under load, and freshet on it, that are struck again and again.
type struck struct {
	*busySite
	chance  *rand.Rand
	freshet *testbed.Running
	began   time.Time // the load, for the last time
}

// newStruck starts freshet, with its event log in one process or in Kafka: chance decides. Half of the rows are left to
// the strikes: a later change of the same row would delete what is stale.
func newStruck(t *testing.T, l *busySite) *struck {
	t.Helper()
	l.hot = busyRows / 2
	s := &struck{busySite: l, chance: testbed.Seeded(t)}
	if s.chance.IntN(2) == 0 {
		t.Log("around Kafka")
		l.site = l.around(t, testbed.SharedKafka(t))
	}
	s.freshet = s.run()
	return s
}

// strike has one strike after the other, in an order of chance: one in make test. FRESHET_CAUSES, a regular expression,
// names those that come. After each, settle has Redis work as before, and no value may be older than its row.
func (s *struck) strike(strikes map[string]func(), settle func()) {
	s.t.Helper()
	only := regexp.MustCompile(os.Getenv("FRESHET_CAUSES"))
	others := func(name string) bool { return !only.MatchString(name) }
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(strikes)), others)
	if len(names) == 0 {
		s.t.Skip("FRESHET_CAUSES names none of these strikes")
	}
	for range testbed.Cut(1, 30) {
		s.began = time.Now()
		s.startLoad()
		s.fillUp()
		name := names[s.chance.IntN(len(names))]
		s.t.Log(name)
		strikes[name]()
		settle()
		s.await("freshet answers", func(*app.Status) bool { return true })
		s.pass(2 * time.Second)
		s.undoubted()
		s.finished(s.site)
		s.fillUp()
		s.haltLoad()
		s.noneStale()
	}
	s.stopLoad(s.site)
}

// undoubted waits until nothing is in doubt. On a busy machine an answer about all keys takes half a minute, and the
// next one rests for four times as long.
func (s *struck) undoubted() {
	s.t.Helper()
	s.eased.Add(1)
	defer s.eased.Add(-1)
	testbed.Eventually(s.t, 5*patience, "nothing is in doubt", func() bool {
		st := s.status()
		return st != nil && len(st.Doubts) == 0
	})
}

// noneStale waits until no value is older than its row. Nobody fills the cache any more: what is stale stays so, unless
// freshet deletes it. It notices who Redis is a moment after that has changed.
func (s *struck) noneStale() {
	s.t.Helper()
	var wrong []string
	defer func() {
		if s.t.Failed() {
			s.t.Log(strings.Join(wrong, "\n"))
		}
	}()
	testbed.Eventually(s.t, patience, "no value is stale", func() bool {
		_, wrong = s.compare()
		return len(wrong) == 0
	})
}

// fillUp waits until readers have filled most of the cache.
func (s *struck) fillUp() {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "readers fill the cache", func() bool {
		held, wrong := s.compare() // what changes meanwhile is held, too
		return held+len(wrong) >= busyRows*len(s.forms)/2
	})
}

// pass lets the load go on for up to a while.
func (s *struck) pass(most time.Duration) {
	rest(s.t.Context(), time.Duration(s.chance.Int64N(int64(most))))
}

// changeAll changes all rows.
func (s *struck) changeAll() { s.source.Exec(s.t, "UPDATE shop.product SET price = price + 1") }

func (s *struck) killFreshet() {
	s.freshet.Kill9()
	s.changeAll()
	s.freshet = s.start("run")
}

// hang has Redis be silent for less than it takes to replace it.
func (s *struck) hang(master *testbed.RedisServer) {
	testbed.Must(s.t, master.Pause())
	s.changeAll()
	s.pass(time.Second)
	testbed.Must(s.t, master.Resume())
}

func (s *struck) walkAndRedo() {
	s.warm("shop.product", "")
	s.ask("redo", "--since", s.began.Format(time.RFC3339), "--wait")
}

func (s *struck) forgetAll() { s.ask("invalidate", "--all", "--wait") }

func (s *struck) olderData(master *testbed.RedisServer) {
	master.Do(s.t, "save")
	s.pass(3 * time.Second)
	s.changeAll()
	s.pass(3 * time.Second)
	s.again(master)
}

func (s *struck) olderDataUnseen(master *testbed.RedisServer) {
	master.Do(s.t, "save")
	s.changeAll()
	s.pass(3 * time.Second)
	s.freshet.Kill9()
	s.again(master)
	s.freshet = s.start("run")
}

func (s *struck) allOlder(all ...*testbed.RedisServer) {
	for _, m := range all {
		m.Do(s.t, "save")
	}
	s.changeAll()
	s.pass(3 * time.Second)
	s.again(all...)
}

// again kills servers, and starts them with what they have saved.
func (s *struck) again(servers ...*testbed.RedisServer) {
	for _, m := range servers {
		testbed.Must(s.t, m.Kill())
	}
	for _, m := range servers {
		testbed.Must(s.t, m.Start(s.t.Context()))
	}
}
