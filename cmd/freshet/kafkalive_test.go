package main

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// Of two readers one stands by and says so. The position can be seen while they run, and set when they do not.
func TestThePositionAroundKafkaIsShownWhileReadersRunAndSetWhenTheyDoNot(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, testbed.SharedKafka(t))
	first, second, invalidator := s.part("reader"), s.part("reader"), s.part("invalidator")
	at := places(t, s.source)["gtid"]
	if out := first.ask("position", "set", at); !strings.HasPrefix(out, "position was none, is now ") {
		t.Fatalf("position set before the first start: %s", out)
	}
	leader := first.start("reader")
	first.awaitFresh()
	standby := second.start("reader")
	second.await("it stands by", func(st *app.Status) bool {
		return st.State == app.Standby && st.Standby &&
			st.Sentence == "another reader of the source default leads; this one takes over when it stops"
	})
	if out := second.ask("status"); !strings.Contains(out, "standby: another reader of the source default leads") ||
		strings.Contains(out, "row changes") {
		t.Errorf("status of the standby:\n%s", out)
	}
	if code, body := second.get("/readyz?verbose"); code != 200 || body != "[+] source ok\n[+] eventlog ok\n" {
		t.Errorf("/readyz of the standby: %d %s", code, body)
	}
	s.writeMany(1, 30)
	testbed.Eventually(t, patience, "the position moves", func() bool {
		return strings.Contains(first.ask("position", "show"), places(t, s.source)["gtid"][len("gtid:"):])
	})
	first.refused(exitFailed, []string{
		"readers of the source are running", s.topic + ".reader.default has 2",
		"stop freshet before its position is set",
	}, "position", "set", at)
	term := first.status().Checkpoint.Term
	if code := leader.Stop(t, patience); code != exitDone {
		t.Errorf("the leader: exit code %d", code)
	}
	second.await("the standby leads", func(st *app.Status) bool {
		return st.State == app.Fresh && st.Checkpoint != nil && st.Checkpoint.Term > term
	})
	first.refused(exitFailed, []string{"readers of the source are running"}, "position", "set", at)
	if code := standby.Stop(t, patience); code != exitDone {
		t.Errorf("the standby: exit code %d", code)
	}
	invalidator.caughtUp()

	// Back, without a word, and forward only on purpose.
	s.cache("product:7")
	if out := first.ask("position", "set", at); !strings.HasPrefix(out, "position was ") {
		t.Errorf("position set: %s", out)
	}
	if rows, _ := first.caughtUp(); rows != 30 {
		t.Errorf("rows=%d after the position was set back", rows)
	}
	invalidator.caughtUp()
	s.nothingCached()
	s.writeMany(1, 30)
	now := places(t, s.source)["gtid"]
	first.refused(exitFailed, []string{"is ahead of the saved position", "--skip"}, "position", "set", now)
	first.ask("position", "set", "--skip", now)
	if rows, _ := first.caughtUp(); rows != 0 {
		t.Errorf("rows=%d after they were skipped", rows)
	}
}

// Without its brokers freshet starts, says what it waits for, can be stopped, and begins by itself when they come.
func TestFreshetStartsWithoutKafkaAndRecovers(t *testing.T) {
	t.Parallel()
	kafka := testbed.Kafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	testbed.Must(t, kafka.Broker(1).Kill())
	reader, invalidator, run := s.part("reader"), s.part("invalidator"), s.part("run")
	parts := map[*site]*testbed.Running{}
	for _, p := range []*site{reader, invalidator, run} {
		parts[p] = p.start(p.role)
	}
	for p := range parts {
		p.await("it says what it waits for", func(st *app.Status) bool {
			return st.State == app.Starting && strings.Contains(st.Sentence, "kafka: ") &&
				strings.Contains(st.Sentence, kafka.Brokers()[0]) &&
				strings.Contains(st.Sentence, "connection refused; trying again forever")
		})
		if code, body := p.get("/readyz"); code != 503 ||
			!strings.Contains(body, "[-] eventlog: no broker of "+kafka.Brokers()[0]+" has answered yet") {
			t.Errorf("%s: /readyz: %d %s", p.role, code, body)
		}
		if code, _ := p.get("/livez"); code != 200 {
			t.Errorf("%s: /livez: %d: a restart would not help", p.role, code)
		}
	}
	if code := parts[run].Stop(t, patience); code != exitDone {
		t.Errorf("run, stopped while it waited: exit code %d", code)
	}
	delete(parts, run)
	reader.refused(exitFailed, []string{kafka.Brokers()[0], "connection refused"}, "position", "show")
	invalidator.await("the alarm is there", func(st *app.Status) bool {
		return len(st.Alarms) == 1 && strings.Contains(st.Alarms[0].Message, "connection refused; trying again forever")
	})

	testbed.Must(t, kafka.Broker(1).Start(t.Context()))
	reader.awaitFresh()
	invalidator.awaitFresh()
	if code, body := invalidator.get("/readyz?verbose"); code != 200 || body != "[+] redis ok\n[+] eventlog ok\n" {
		t.Errorf("/readyz: %d %s", code, body)
	}
	s.writeMany(1, 30)
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
	// It goes away and comes back while they run.
	testbed.Must(t, kafka.Broker(1).Stop())
	s.writeMany(1, 30)
	for p := range parts {
		p.await("it says that Kafka is away", func(st *app.Status) bool {
			return st.State == app.Behind && strings.HasPrefix(st.Sentence, "kafka: ") &&
				strings.HasSuffix(st.Sentence, "; trying again forever, nothing is lost")
		})
		if code, body := p.get("/readyz"); code != 503 || !strings.Contains(body, "[-] eventlog: kafka: ") {
			t.Errorf("%s: /readyz: %d %s", p.role, code, body)
		}
	}
	testbed.Must(t, kafka.Broker(1).Start(t.Context()))
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
	reader.awaitFresh()
	invalidator.awaitFresh()
	for p, r := range parts {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("%s: exit code %d", p.role, code)
		}
	}
}
