package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/freshet/freshet/canal"
)

// checkServers looks at each of several source.addresses: any of them may be read after a failover.
func checkServers(ctx context.Context, o canal.Options, r *Report) {
	all, apart := canal.ProbeServers(ctx, o)
	for _, s := range all {
		if s.Err != nil {
			r.add(Fail, "source.addresses: "+s.Err.Error(), "after a failover freshet could not read it: name servers that "+
				"replicate from one another, where source.user may log in")
			continue
		}
		checkSourceServer(&s, r)
	}
	if apart != "" {
		r.add(Fail, "source.addresses: "+apart, "find out which is the primary, and make the other one its replica; "+
			"clear the keys of what was written on the other one")
	}
}

// checkSourceServer looks at one of them.
func checkSourceServer(s *canal.ServerProbe, r *Report) {
	role := "takes writes"
	switch {
	case s.Replicates && s.ReadOnly:
		role = "is a replica, read only"
	case s.Replicates:
		role = "is a replica, and takes writes as well"
	case s.ReadOnly:
		role = "is read only, and replicates from no server"
	}
	r.add(OK, fmt.Sprintf("source.addresses: %s is server %s, %s, and %s", s.Address, s.Info.Server, s.Info.Version,
		role), "")
	if s.Replicates && !s.Info.LogReplicaUpdates {
		r.add(Warn, "source.addresses: "+s.Address+" does not log what it replicates: it cannot be read while another "+
			"server takes writes", "set log_replica_updates=ON (MariaDB: log_slave_updates=ON), and restart it")
	}
	if f := s.Info.BinlogFormat; f != "" && !strings.EqualFold(f, "ROW") {
		r.add(Fail, fmt.Sprintf("source.addresses: %s has binlog_format %s: once it takes writes, changes that are logged "+
			"as statements name no rows", s.Address, f), set(s.Info, "binlog_format", "'ROW'"))
	}
}
