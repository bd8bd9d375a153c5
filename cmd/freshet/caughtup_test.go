package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// caughtUp runs `freshet run --until-caught-up`, or the command of the site's part, to its end and returns what its
// last line says.
func (s *site) caughtUp() (rows, keys int) {
	s.t.Helper()
	command := s.role
	if command == "" {
		command = "run"
	}
	out := s.ask(command, "--until-caught-up")
	m := regexp.MustCompile(`^caught up: rows=([0-9]+) keys=([0-9]+) seconds=[0-9]+\.[0-9]{3}\n$`).FindStringSubmatch(out)
	if m == nil {
		s.t.Fatalf("stdout is %q", out)
	}
	rows, _ = strconv.Atoi(m[1])
	keys, _ = strconv.Atoi(m[2])
	return rows, keys
}

func TestUntilCaughtUpEndsWhenTheBacklogIsFinished(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		if rows, keys := s.caughtUp(); rows != 0 || keys != 0 {
			t.Errorf("nothing to do: rows=%d keys=%d", rows, keys)
		}
		const n = 300
		var values []string
		for id := range n {
			s.cache(fmt.Sprintf("product:%d", id))
			values = append(values, fmt.Sprintf("(%d, 1)", id))
		}
		source.Exec(t, "INSERT INTO shop.product VALUES "+strings.Join(values, ","))
		if rows, keys := s.caughtUp(); rows != n || keys < n {
			t.Errorf("%d rows: rows=%d keys=%d", n, rows, keys)
		}
		if left := s.allCached(); len(left) > 0 {
			t.Errorf("keys are left: %q", left)
		}
		if rows, _ := s.caughtUp(); rows != 0 {
			t.Errorf("the backlog comes twice: rows=%d", rows)
		}
	})
}

func TestUntilCaughtUpEndsWhileOthersWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	s.caughtUp()
	s.cache("product:1")
	s.write(1)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 2; ctx.Err() == nil; i++ {
			if err := s.source.ExecContext(ctx, fmt.Sprintf("INSERT INTO shop.product VALUES (%d, 1)", i)); err != nil &&
				ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	rows, _ := s.caughtUp()
	stop()
	writer.Wait()
	if rows < 1 || s.cached("product:1") {
		t.Errorf("rows=%d, and product:1 cached: %v", rows, s.cached("product:1"))
	}
}
