package operate

import (
	"context"
	"fmt"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator/rebuild"
	"github.com/freshet/freshet/invalidator/write"
)

// checkQueries has the servers prepare the queries of the mappings.
func checkQueries(ctx context.Context, c *config.Config, r *Report) {
	run, err := connect.Rebuilder(c, connect.Source(c).Servers, func(*rebuild.Options) {})
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	if run == nil {
		return
	}
	defer run.Close()
	checked, err := run.Check(ctx)
	if err != nil {
		r.add(Fail, "the queries could not be tried: "+err.Error(), "")
		return
	}
	good := 0
	for _, q := range checked {
		m := &c.Mappings[q.Query.Mapping]
		if most := write.Window(m.SecondDelete); m.Rebuild.Timeout > most {
			r.add(Warn, fmt.Sprintf("%s: timeout %s is of no use: a query that takes longer than %s, second_delete and 5s, "+
				"deletes its key instead of writing it",
				q.Query.Where, m.Rebuild.Timeout, most),
				fmt.Sprintf("write timeout: %s at most, or use a longer second_delete", most))
		}
		if q.Err != nil {
			r.add(Fail, q.Err.Error(), "")
			continue
		}
		if q.Elsewhere != nil {
			r.add(Warn, fmt.Sprintf("%s: the query runs on the source for now, and not on %s: %v", q.Query.Where,
				q.Query.Server, q.Elsewhere), "see docs/queries.md, \"On a replica\"")
		}
		good++
	}
	if good > 0 {
		r.add(OK, fmt.Sprintf("%d of %d queries can be run by %s", good, len(checked), c.Source.User), "")
	}
}
