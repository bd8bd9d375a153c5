package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// An answer that reads rows goes on where it was when freshet is killed, and misses no key, also of a row that changes
// meanwhile.
func TestAnAnswerByRowsThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		const rows = 6000
		s := newSite(t, source)
		var values []string
		var cached []any
		for id := range rows {
			values = append(values, fmt.Sprintf("(%d, 'n%d')", id, id))
			cached = append(cached, fmt.Sprintf("user:n%d", id), "old")
		}
		source.Exec(t, "CREATE TABLE shop.user (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL)",
			"INSERT INTO shop.user VALUES "+strings.Join(values, ", "))
		s.mappings = `[{table: shop.user, keys: ["user:{name}"], scope: rows}]`
		l := livesOn(s)
		l.reads, l.role, l.extra = s, "run", "scope_rate: 2000\n"
		l.running[s] = s.start("run")
		s.await("freshet is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
		testbed.Must(t, s.redis.Client().MSet(t.Context(), append(cached, "user:stranger", "old")...).Err())
		source.Exec(t, "SET SESSION binlog_format = STATEMENT", "UPDATE shop.user SET name = CONCAT(name, '')",
			"SET SESSION binlog_format = ROW")
		l.held("some rows are read", pages(1500))
		// Each key is deleted twice, so this comes when about two thirds of the rows are done.
		l.held("most rows are read", pages(6500))
		s.cache("user:n0") // by a reader: what is done is not done again
		source.Exec(t, fmt.Sprintf("UPDATE shop.user SET name = 'renamed' WHERE id = %d", rows-1))
		s.freshAgain()
		if left := s.allCached(); len(left) != 2 || !s.cached("user:n0") {
			t.Errorf("%d keys are cached, want user:n0 and user:stranger alone: %.200q", len(left), left)
		}
		s.kept("user:stranger")
	})
}
