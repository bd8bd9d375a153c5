package main

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// Keys in trouble are in topics of the group, and are dealt with through a running invalidator or without one.
func TestAKeyThatRedisRefusesBecomesADeadLetterAroundKafka(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	s.forbid()
	reader, invalidator := s.part("reader"), s.part("invalidator")
	reader.env = nil // a password for Redis would ask for its address too
	read, invalidate := reader.start("reader"), invalidator.start("invalidator")
	invalidator.awaitFresh()
	s.cache("product:1")
	s.cache("secret:1")
	s.write(1)
	s.gone("product:1")
	givenUp := func(st *app.Status) bool { return st.DeadLetters == 1 && st.Parked == 0 && st.State == app.Doubtful }
	invalidator.await("the key is given up", givenUp)
	id := invalidator.oneLetter()
	reader.refused(exitFailed, []string{"this process deletes no keys", "ask an invalidator"}, "dlq", "list", "--url",
		"http://"+reader.listen)

	// Replayed while nothing was fixed, it comes back; nobody asks for the token where it is asked of Kafka.
	if out := invalidator.ask("dlq", "replay", id); out != "replayed 1 dead letters\n" {
		t.Fatalf("dlq replay: %s", out)
	}
	invalidator.await("the key is given up again", givenUp)
	if code := invalidate.Stop(t, patience); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	again := invalidator.oneLetter()
	if again == id {
		t.Errorf("the new letter has the number of the old one, %s", id)
	}

	s.redis.Do(t, "ACL", "SETUSER", "freshet", "~secret:*")
	if out := invalidator.ask("dlq", "replay", again); out != "replayed 1 dead letters\n" {
		t.Fatalf("dlq replay without an invalidator: %s", out)
	}
	if out := invalidator.ask("dlq", "replay", again); out != "replayed 0 dead letters\n" {
		t.Errorf("the same letter again: %s", out)
	}
	if !s.cached("secret:1") {
		t.Error("the key was deleted although no invalidator runs")
	}
	invalidate = invalidator.start("invalidator")
	s.gone("secret:1")
	invalidator.await("nothing is in trouble",
		func(st *app.Status) bool { return st.DeadLetters == 0 && st.Parked == 0 && st.State == app.Fresh })
	if out := invalidator.ask("dlq", "list"); strings.Count(out, "\n") != 1 {
		t.Errorf("dlq list: %s", out)
	}
	for _, r := range []*testbed.Running{read, invalidate} {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	}
}
