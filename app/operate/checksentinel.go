package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
)

// checkSentinels asks each sentinel for the master, and reports whether any knows it.
func checkSentinels(ctx context.Context, c *config.Config, r *Report) bool {
	s := connect.Sentinels(c)
	master, err := s.Master(ctx)
	if err != nil {
		r.add(Fail, err.Error(), "are redis.addresses those of sentinels, and is redis.master_name their name for the master?")
		return false
	}
	var wrong []string
	for _, one := range c.Redis.Addresses {
		alone := *s
		alone.Addresses = []string{one}
		switch at, err := alone.Master(ctx); {
		case err != nil:
			r.add(Warn, err.Error(), "start it, or take it out of redis.addresses: with too few sentinels nobody knows the master")
		case at != master:
			wrong = append(wrong, fmt.Sprintf("%s (says %s)", one, at))
		}
	}
	if len(wrong) > 0 {
		r.add(Warn, fmt.Sprintf("not all sentinels name the same master %s: it is %s by the newest failover, but not for %s",
			c.Redis.MasterName, master, strings.Join(wrong, ", ")), "are these sentinels cut off from the others?")
	}
	if n := len(c.Redis.Addresses); n < 3 {
		r.add(Warn, fmt.Sprintf("redis.addresses names %d of the sentinels", n),
			"name all of them: those that are not named are not asked when these are down")
	}
	r.add(OK, fmt.Sprintf("the sentinels say that the master %s is at %s", c.Redis.MasterName, master), "")
	return true
}
