package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// places are the ways to write the position that a source is at.
func places(t *testing.T, source *testbed.Server) map[string]string {
	file, pos := source.BinlogPosition(t)
	return map[string]string{"gtid": "gtid:" + source.GTIDs(t), "file": fmt.Sprintf("%s:%d", file, pos)}
}

func TestAPositionThatIsSetBackLeadsToTheSameDeletesAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.write(1)
		s.caughtUp()
		before := places(t, source)
		// The binlog tells its beginning to the second: the time must be of a later one.
		begun := time.Now().Unix()
		testbed.Eventually(t, patience, "the next second begins", func() bool { return time.Now().Unix() > begun })
		before["time"] = time.Now().UTC().Format(time.RFC3339)
		before["earliest"] = "earliest"
		s.write(2)
		s.caughtUp()
		for form, where := range before {
			t.Run(form, func(t *testing.T) {
				s := *s
				s.t = t
				s.cache("product:2")
				set := s.start("position", "set", where)
				if code := set.Wait(t, patience); code != exitDone || !strings.HasPrefix(set.Stdout(), "position was ") {
					t.Fatalf("exit code %d, %s", code, set.Stdout())
				}
				if !strings.Contains(set.Stderr(), `"msg":"position set by hand"`) {
					t.Errorf("the change is not logged: %s", set.Stderr())
				}
				if rows, _ := s.caughtUp(); rows < 1 || s.cached("product:2") {
					t.Errorf("rows=%d, and product:2 cached: %v", rows, s.cached("product:2"))
				}
			})
		}
	})
}

func TestAPositionIsSetForwardOnlyOnPurpose(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.caughtUp()
		at := s.ask("position", "show")
		s.cache("product:1")
		s.write(1)
		for form, where := range places(t, source) {
			t.Run(form, func(t *testing.T) {
				s := *s
				s.t = t
				s.refused(exitFailed, []string{"is ahead of the saved position", "--skip"}, "position", "set", where)
			})
		}
		if now := s.ask("position", "show"); now != at {
			t.Fatalf("a refused position was set: %s", now)
		}
		r := s.start("position", "set", "--skip", places(t, source)["gtid"])
		if code := r.Wait(t, patience); code != exitDone || !strings.Contains(r.Stderr(), `"skip":true`) {
			t.Fatalf("exit code %d", code)
		}
		if rows, _ := s.caughtUp(); rows != 0 || !s.cached("product:1") {
			t.Errorf("rows=%d, and product:1 cached: %v", rows, s.cached("product:1"))
		}
	})
}

func TestAPositionCanBeSetBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	at := places(t, s.source)["gtid"]
	s.cache("product:1")
	s.write(1)
	set := s.start("position", "set", at)
	if code := set.Wait(t, patience); code != exitDone || !strings.HasPrefix(set.Stdout(), "position was none, is now ") {
		t.Fatalf("exit code %d, %s", code, set.Stdout())
	}
	if rows, _ := s.caughtUp(); rows != 1 || s.cached("product:1") {
		t.Errorf("rows=%d, and product:1 cached: %v", rows, s.cached("product:1"))
	}
}

func TestAPositionThatTheSourceDoesNotHaveIsRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.caughtUp()
		at := s.ask("position", "show")
		for _, where := range []string{"binlog.004711:4", "gtid:0-1-x", "2026-13-31T08:00:00Z"} {
			r := s.start("position", "set", where)
			if code := r.Wait(t, patience); code == exitDone || !strings.Contains(r.Stderr(), where) &&
				!strings.Contains(r.Stderr(), "binlog.004711") {
				t.Errorf("%s: exit code %d", where, code)
			}
		}
		if now := s.ask("position", "show"); now != at {
			t.Errorf("a refused position was set: %s", now)
		}
	})
}

func TestPurgedBinlogsEndWithTheirOwnExitCodeAndTheGapInWords(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.caughtUp()
		s.write(1)
		source.Exec(t, "FLUSH BINARY LOGS")
		s.write(2)
		file := source.PurgeBinlogs(t)
		at := s.ask("position", "show")
		s.refused(exitGap, []string{"purged", file}, "run")
		s.refused(exitGap, []string{"purged", file}, "run", "--until-caught-up")
		if now := s.ask("position", "show"); now != at {
			t.Errorf("the position moved over the gap: %s", now)
		}
	})
}
