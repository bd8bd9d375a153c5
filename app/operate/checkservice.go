package operate

import (
	"context"
	"fmt"
	"regexp"

	"github.com/freshet/freshet/retry"
)

// checkProduct looks whether a service runs the server, and whether it is a product whose writes are not ours alone.
//
// A service such as ElastiCache takes the commands of operators away: they are unknown then, and not forbidden.
// Source: Amazon ElastiCache User Guide, "Supported and restricted commands". An Active-Active database of Redis
// Enterprise has commands of its own. Source: Redis Software documentation, "Key commands compatibility" (CRDT.DEBUG).
// It was not tried.
func checkProduct(ctx context.Context, r *Report, s *redisServer) {
	if err := s.rdb.ConfigGet(ctx, "save").Err(); retry.IsUnknownCommand(err) {
		r.service = true
		r.add(OK, fmt.Sprintf("redis %s: nobody may run CONFIG there, as where a service runs it", s.at), "")
	}
	known, err := s.rdb.Do(ctx, "command", "info", "crdt.debug").Slice()
	if err == nil && len(known) == 1 && known[0] != nil {
		r.add(Fail, fmt.Sprintf("redis %s is an Active-Active database of Redis Enterprise: it merges a delete here with what "+
			"is filled elsewhere at the same time, so that a stale value may stay", s.at), "use a database that takes writes in "+
			"one place")
	}
}

var (
	aclSetUser = regexp.MustCompile(`ACL SETUSER (\S+) `)
	configSet  = regexp.MustCompile(`CONFIG SET (\S+) (\S+)`)
)

// inService says in the words of a service how findings are fixed: there, rights are access strings of users, and
// settings are in parameter groups.
func inService(all []Found) {
	for i := range all {
		all[i].Fix = aclSetUser.ReplaceAllString(all[i].Fix, "add to the access string of user $1: ")
		all[i].Fix = configSet.ReplaceAllString(all[i].Fix, "set $1 to $2 in the parameter group")
	}
}
