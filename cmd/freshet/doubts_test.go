package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// truncated reports whether the status is doubtful, for the TRUNCATE of shop.product alone.
func truncated(st *app.Status) bool {
	return st.State == app.Doubtful && len(st.Doubts) == 1 && st.Doubts[0].Cause == alarm.TruncatedTable &&
		strings.Contains(st.Sentence, "shop.product") &&
		(strings.Contains(st.Sentence, st.Doubts[0].ID) || strings.Contains(st.Sentence, "the invalidators answer it"))
}

// A TRUNCATE leaves no row events, and keys of free text are not looked for: they stay cached. However freshet is
// started again after it, its user is informed.
func TestATruncateIsInDoubtThroughAKill(t *testing.T) {
	eitherLog(t, aTruncateIsInDoubtThroughAKill, aTruncateIsInDoubtThroughAKillAroundKafka)
}

func aTruncateIsInDoubtThroughAKill(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.source.Exec(t, "ALTER TABLE shop.product ADD COLUMN name VARCHAR(20) NOT NULL DEFAULT 'a'")
		s.keys = append(s.keys, "named:{name}")
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
		s.doubtIsDismissed(id)
		s.cache("product:1")
		s.write(1)
		s.gone("product:1")
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
		if out := s.ask("doubts", "list"); strings.Count(out, "\n") != 1 { // from the store
			t.Errorf("doubts list: %s", out)
		}
	})
}

// doubtIsDismissed lists, shows and dismisses the only doubt of a running freshet.
func (s *site) doubtIsDismissed(id string) {
	s.t.Helper()
	list := s.ask("doubts", "list")
	if lines := strings.Split(strings.TrimSpace(list), "\n"); len(lines) != 2 ||
		!strings.HasPrefix(lines[1], id+"  table_truncated") {
		s.t.Errorf("doubts list:\n%s", list)
	}
	if out := s.ask("doubts", "show", id); !strings.Contains(out, "shop.product") {
		s.t.Errorf("doubts show:\n%s", out)
	}
	var d admin.Doubt
	if err := json.Unmarshal([]byte(s.ask("doubts", "show", "--json", id)), &d); err != nil || d.ID != id ||
		d.Tables[0] != "shop.product" {
		s.t.Errorf("doubts show --json: %+v, %v", d, err)
	}
	if code, body := s.get("/metrics"); code != 200 ||
		!strings.Contains(body, `freshet_doubts{cause="table_truncated"} 1`) ||
		!strings.Contains(body, `freshet_state{state="doubtful"} 1`) {
		s.t.Errorf("metrics: %d", code)
	}
	s.refused(exitFailed, []string{`there is no doubt "nonsense"`, "freshet doubts list"}, "doubts", "dismiss", "nonsense")
	stranger := *s
	stranger.token = "guessed-token"
	stranger.refused(exitFailed, []string{"401", "admin.token"}, "doubts", "dismiss", id)
	if out := s.ask("doubts", "dismiss", id); !strings.HasPrefix(out, "dismissed:\n") ||
		!strings.Contains(out, "shop.product") {
		s.t.Errorf("doubts dismiss:\n%s", out)
	}
	s.await("nothing is in doubt", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
}

// Each group dismisses it for its own Redis.
func aTruncateIsInDoubtThroughAKillAroundKafka(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, testbed.SharedKafka(t))
	s.source.Exec(t, "ALTER TABLE shop.product ADD COLUMN name VARCHAR(20) NOT NULL DEFAULT 'a'")
	s.keys = append(s.keys, "named:{name}")
	reader, invalidator, other := s.part("reader"), s.part("invalidator"), s.otherGroup()
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
	for p := range running {
		p.await("it is still in doubt", truncated)
	}
	id := invalidator.status().Doubts[0].ID
	invalidator.doubtIsDismissed(id)
	for _, p := range []*site{reader, other} {
		p.await("nobody has dismissed it for "+p.role, truncated) // it may just be looking for the keys
	}
	if code := running[other].Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	delete(running, other)
	if out := other.ask("doubts", "dismiss", id); !strings.HasPrefix(out, "dismissed:\n") { // by itself
		t.Errorf("doubts dismiss:\n%s", out)
	}
	for p, r := range running {
		p.await("nobody is in doubt", func(st *app.Status) bool { return len(st.Doubts) == 0 })
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("%s: exit code %d", p.role, code)
		}
	}
}
