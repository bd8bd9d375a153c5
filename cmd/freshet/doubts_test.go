package main

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/testbed"
)

// truncated reports whether the status is doubtful, for the TRUNCATE of shop.product alone.
func truncated(st *app.Status) bool {
	return st.State == app.Doubtful && len(st.Doubts) == 1 && st.Doubts[0].Cause == alarm.TruncatedTable &&
		strings.Contains(st.Sentence, "shop.product") && strings.Contains(st.Sentence, st.Doubts[0].ID)
}

// A TRUNCATE leaves no row events: its keys stay cached. Whoever restarts freshet after it, by whatever means, is told.
func TestATruncateIsInDoubtThroughAKill(t *testing.T) {
	both(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		r := s.run()
		s.source.Exec(t, "TRUNCATE shop.product")
		s.await("it is in doubt", truncated)
		id := s.status().Doubts[0].ID
		r.Kill9()
		r = s.start("run")
		s.await("it is still in doubt", truncated)
		if again := s.status().Doubts[0]; again.ID != id {
			t.Errorf("another doubt: %+v", again)
		}
		if code, body := s.get("/readyz"); code != 200 {
			t.Errorf("/readyz: %d %s", code, body)
		}
		s.cache("product:1")
		s.write(1)
		s.gone("product:1")
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestATruncateIsInDoubtThroughAKillAroundKafka(t *testing.T) {
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, testbed.SharedKafka(t))
	reader, invalidator, other := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	other.kafka = strings.Replace(other.kafka, s.group, s.group+"-other", 1)
	running := map[*site]*testbed.Running{}
	all := []*site{reader, invalidator}
	for _, p := range all {
		running[p] = p.start(p.role)
		p.awaitFresh()
	}
	s.source.Exec(t, "TRUNCATE shop.product")
	for _, p := range all {
		p.await("it is in doubt", truncated)
	}
	for _, p := range all {
		running[p].Kill9()
	}
	for _, p := range append(all, other) {
		running[p] = p.start(p.role)
	}
	for p, r := range running {
		p.await("it is still in doubt", truncated)
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("%s: exit code %d", p.role, code)
		}
	}
}
