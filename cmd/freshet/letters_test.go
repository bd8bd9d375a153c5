package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// forbid makes Redis refuse freshet every key but product:*.
func (s *site) forbid() {
	s.redis.Do(s.t, "ACL", "SETUSER", "freshet", "reset", "on", ">redis-password", "+unlink", "+ping", "+info", "+select",
		"+scan", "~product:*")
	s.keys = []string{"product:{id}", "secret:{id}"}
	s.env = []string{"FRESHET_REDIS_USERNAME=freshet", "FRESHET_REDIS_PASSWORD=redis-password"}
	s.extra = `retry: {max_attempts: 2, park_after: 1, park_delays: [1s], min_backoff: 10ms}`
}

func TestAKeyThatRedisRefusesBecomesADeadLetterAndIsReplayed(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	s.forbid()
	r := s.run()
	s.cache("product:1")
	s.cache("secret:1")
	s.write(1)
	s.gone("product:1") // the other key of the row does not hold it up
	s.await("the key is given up", func(st *app.Status) bool {
		return st.DeadLetters == 1 && st.Parked == 0 && st.State == app.Doubtful &&
			strings.Contains(st.Sentence, "1 keys were given up and may be stale")
	})
	id := s.oneLetter()

	// The shell of somebody who does not know the token.
	stranger := *s
	stranger.token = "guessed-token"
	stranger.refused(exitFailed, []string{"401", "admin.token"}, "dlq", "replay", "--all")
	stranger.refused(exitFailed, []string{"401", "admin.token"}, "dlq", "list")
	stranger.token = ""
	stranger.refused(exitFailed, []string{"401", "admin.token"}, "dlq", "purge", "--all")

	// Replayed while nothing was fixed, it comes back.
	if out := s.ask("dlq", "replay", id); out != "replayed 1 dead letters\n" {
		t.Fatalf("dlq replay: %s", out)
	}
	s.await("the key is given up again", func(st *app.Status) bool { return st.DeadLetters == 1 && st.Parked == 0 })
	if code := r.Stop(t, patience); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	id = s.oneLetter() // from the store

	r = s.start("run")
	s.await("it is in doubt", func(st *app.Status) bool { return st.State == app.Doubtful })
	s.redis.Do(t, "ACL", "SETUSER", "freshet", "~secret:*")
	if out := s.ask("dlq", "replay", id); out != "replayed 1 dead letters\n" {
		t.Fatalf("dlq replay: %s", out)
	}
	s.gone("secret:1")
	s.await("nothing is in trouble", func(st *app.Status) bool { return st.DeadLetters == 0 && st.Parked == 0 })
	if out := s.ask("dlq", "list"); strings.Count(out, "\n") != 1 {
		t.Errorf("dlq list: %s", out)
	}
	if code := r.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// oneLetter returns the id of the only dead letter, of secret:1.
func (s *site) oneLetter() string {
	s.t.Helper()
	out := s.ask("dlq", "list")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"secret:1"`) || !strings.Contains(lines[1], "NOPERM") ||
		!strings.Contains(lines[1], "shop.product") {
		s.t.Fatalf("dlq list:\n%s", out)
	}
	id := strings.Fields(lines[1])[0]
	var l admin.Letter
	if err := json.Unmarshal([]byte(s.ask("dlq", "show", id)), &l); err != nil || l.Key != "secret:1" || l.Attempts != 2 ||
		l.Action != "delete" {
		s.t.Errorf("dlq show %s: %+v, %v", id, l, err)
	}
	return id
}

func TestWithoutATokenDeadLettersAreShownAndNotChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	s.forbid()
	s.token = ""
	r := s.run()
	s.cache("secret:1")
	s.write(1)
	s.await("the key is given up", func(st *app.Status) bool { return st.DeadLetters == 1 })
	s.refused(exitFailed, []string{"403", "admin.token"}, "dlq", "replay", "--all")
	s.refused(exitFailed, []string{"403", "admin.token"}, "dlq", "purge", "--all")
	s.oneLetter()
	if code := r.Stop(t, patience); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	// Who may write to the store needs no token.
	if out := s.ask("dlq", "purge", "--all"); out != "purged 1 dead letters\n" {
		t.Errorf("dlq purge: %s", out)
	}
	if !s.cached("secret:1") {
		t.Error("purging a dead letter deleted its key")
	}
}
