package operate

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
)

// Check looks at the source, the mapped tables, Kafka and Redis as they are now, as far as the configuration names
// them.
func Check(ctx context.Context, c *config.Config) *Report {
	r := &Report{}
	var tables []*event.Table
	read := false
	if c.HasSource() {
		tables, read = checkSource(ctx, c, r)
	}
	var saved event.Position
	known := false
	if c.EventLog.Kind == config.EventLogKafka {
		saved, known = checkKafka(ctx, c, r)
	} else {
		saved, known = checkStore(c, r)
	}
	if read && known {
		checkStart(ctx, c, &saved, r)
	}
	if c.HasRedis() {
		checkRedis(ctx, c, tables, r)
	}
	checkSecrets(c, r)
	return r
}

// leastRetention is the shortest binlog retention that is not warned of: a weekend's outage should not lose the
// position.
const leastRetention = 72 * time.Hour

// checkSource returns the mapped tables, as far as it could ask, and whether the source has a binlog that we may read.
func checkSource(ctx context.Context, c *config.Config, r *Report) (tables []*event.Table, read bool) {
	o := connect.Source(c)
	info, err := canal.Probe(ctx, o)
	if err != nil {
		r.add(Fail, err.Error(), "is source.addresses right, is the server up, and may source.user log in from here?")
		return nil, false
	}
	r.add(OK, fmt.Sprintf("source %s is %s", o.Servers.Current(), sourceLine(info)), "")
	checkServers(ctx, o, r)
	if !info.LogBin {
		fix := "start it with log_bin: [mysqld] log-bin=binlog server-id=1"
		switch info.Service {
		case canal.RDS, canal.CloudSQL:
			fix = "turn automated backups on, and binary logging with them"
		case canal.Aurora:
			fix = set(info, "binlog_format", "ROW") + ", and restart the writer"
		}
		r.add(Fail, "the source writes no binlog", fix)
		return nil, false
	}
	read = checkGrants(c, info, r)
	checkFills(ctx, c, o, info, r)
	checkSettings(c, info, r)
	tables = checkTables(ctx, c, o, info, r)
	checkQueries(ctx, c, r)
	return tables, read
}

// checkFills asks the servers that the application fills its cache from.
func checkFills(ctx context.Context, c *config.Config, o canal.Options, info *canal.SourceInfo, r *Report) {
	if len(c.Source.FillFrom) == 0 {
		return
	}
	if is, why := info.HasGTIDsOfAll(); !is {
		r.add(Fail, "source.fill_from needs GTIDs that mean the same on all servers, and the source's "+why,
			"set it to ON on all servers, or write source.fill_lag instead")
		return
	}
	all, err := canal.ProbeFills(ctx, o, info)
	if err != nil {
		r.add(Fail, err.Error(), "")
	}
	for _, p := range all {
		if p.Err != nil {
			r.add(Fail, "source.fill_from: "+p.Err.Error(),
				"name the servers that the application reads, as freshet can reach them; source.user must be able to log in")
			continue
		}
		role, state := "takes writes", "has all that the source has"
		if p.ReadOnly {
			role = "is read only"
		}
		if p.Lacks {
			state = "lacks something that the source has"
		}
		r.add(OK, fmt.Sprintf("source.fill_from: %s is server %s, %s, %s, and %s now", p.Address, p.Server, p.Version, role,
			state), "")
	}
}

// set returns how a global variable is set for good: the statement, as far as the flavor can, or where a service has
// it.
func set(info *canal.SourceInfo, variable, value string) string {
	where := map[canal.Service]string{
		canal.RDS:      "the parameter group of the instance (RDS refuses SET GLOBAL)",
		canal.Aurora:   "the parameter group of the DB cluster (Aurora refuses SET GLOBAL)",
		canal.CloudSQL: "the database flags of the instance (Cloud SQL refuses SET GLOBAL)",
		canal.Azure:    "the server parameters (Azure refuses SET GLOBAL)",
	}[info.Service]
	if where != "" {
		return fmt.Sprintf("set %s = %s in %s", variable, strings.Trim(value, "'"), where)
	}
	if info.Flavor == event.MySQL {
		return fmt.Sprintf("SET PERSIST %s = %s;", variable, value)
	}
	return fmt.Sprintf("SET GLOBAL %s = %s;  -- and in my.cnf: %s=%s", variable, value, variable, strings.Trim(value, "'"))
}

func checkSettings(c *config.Config, info *canal.SourceInfo, r *Report) {
	if strings.EqualFold(info.BinlogFormat, "ROW") || info.BinlogFormat == "" {
		r.add(OK, "binlog_format is ROW", "")
	} else {
		r.add(Fail, fmt.Sprintf("binlog_format is %s: changes that are logged as statements name no rows, so all keys of "+
			"their tables are forgotten each time", info.BinlogFormat),
			set(info, "binlog_format", "'ROW'")+"  -- sessions that are open keep the old format: let them reconnect")
	}
	if !wholeImages(info) {
		r.add(Warn, fmt.Sprintf("binlog_row_image is %s: a key of a column that is neither in the primary key nor changed "+
			"cannot be named, so all keys of its template are forgotten each time", info.RowImage),
			set(info, "binlog_row_image", "'FULL'"))
	}
	if !strings.EqualFold(info.RowMetadata, "FULL") {
		r.add(Warn, fmt.Sprintf("binlog_row_metadata is %s: the names of columns are not in the binlog, so freshet follows "+
			"DDL statements; some cannot be followed, and then the table is in doubt", orNone(info.RowMetadata)),
			set(info, "binlog_row_metadata", "'FULL'"))
	}
	if info.OwnGTIDs {
		r.add(Warn, "wsrep_gtid_mode is OFF: the GTIDs of this node of a Galera cluster mean nothing on another one, so when "+
			"another one answers freshet does not know where to go on: that is a gap",
			"set wsrep_gtid_mode=ON, one wsrep_gtid_domain_id and one server_id on all nodes, and restart them one by one")
	}
	if info.Flavor == event.MySQL && !info.GTID {
		r.add(Warn, fmt.Sprintf("gtid_mode is %s: the position is a file and an offset of this server only, and freshet "+
			"cannot ask exactly which changes readers see (promise 2 is then a best effort)", info.GTIDMode),
			"see \"Enabling GTID Transactions Online\" in the MySQL manual")
		if info.SemiSync && strings.EqualFold(info.SemiSyncWaitPoint, "AFTER_SYNC") {
			r.add(Warn, "semi-synchronous replication without GTIDs: changes come seconds before readers see them, and their "+
				"final deletes wait until no commit is held", "turn GTIDs on")
		}
	}
	for _, s := range []struct{ name, value string }{
		{"sync_binlog", info.SyncBinlog},
		{"innodb_flush_log_at_trx_commit", info.FlushLog},
	} {
		if s.value != "" && s.value != "1" {
			r.add(Warn, fmt.Sprintf("%s is %s: when the source's machine crashes, it loses transactions that were read, and "+
				"may give their numbers "+
				"to others; freshet then does what on_gap says", s.name, s.value), set(info, s.name, "1"))
		}
	}
	for _, lack := range info.Lacks {
		r.add(Fail, lack.What+": their keys stay stale", lack.Do)
	}
	if len(info.Lacks) == 0 {
		r.add(OK, "no setting leaves changes of mapped tables out of the binlog; what a session leaves out by "+
			"sql_log_bin=0 cannot be seen", "")
	}
	checkRetention(info, r)
	if id := c.Source.ServerID; id != 0 && (id == info.ServerID || slices.Contains(info.Replicas, id)) {
		r.add(Fail, fmt.Sprintf("source.server_id %d is taken by the source or one of its replicas", id),
			"choose another number, or leave it out")
	}
}

// checkRetention says for how long the source keeps its binlogs, as it says and as was seen.
func checkRetention(info *canal.SourceInfo, r *Report) {
	k := &info.Retention
	do := set(info, "binlog_expire_logs_seconds", "604800")
	if k.Soon || k.Unknown || k.Setting == canal.RDSHours {
		do = fmt.Sprintf("CALL mysql.rds_set_configuration('%s', 168);", canal.RDSHours)
	}
	kept := k.For(time.Now())
	switch {
	case k.Soon:
		r.add(Warn, fmt.Sprintf("`%s` is not set, so the service purges binlogs as soon as it does not need them itself: "+
			"any outage loses the position", k.Setting), do)
	case k.Unknown:
		r.add(Warn, fmt.Sprintf("the service purges binlogs by `%s`, which source.user may not read: the oldest that is "+
			"left is %s old", k.Setting, kept.Round(time.Minute)),
			"GRANT SELECT ON mysql.rds_configuration TO the user, and look at `CALL mysql.rds_show_configuration;`")
	case k.Kept > 0 && kept < k.Kept/2:
		r.add(Warn, fmt.Sprintf("%s says that binlogs are kept for %s, but the oldest that is left is %s old: something "+
			"else purges them", k.Setting, k.Kept, kept.Round(time.Minute)),
			"find out what does (PURGE BINARY LOGS, a limit of their size, the service), and let it keep some days")
	case kept == 0:
		r.add(OK, "binlogs are kept until somebody purges them", "")
	case kept < leastRetention:
		r.add(Warn, fmt.Sprintf("binlogs are kept for %s only: an outage that lasts longer loses the position",
			kept.Round(time.Second)), do)
	default:
		r.add(OK, fmt.Sprintf("binlogs are kept for %s", kept.Round(time.Second)), "")
	}
}

func orNone(s string) string {
	if s == "" {
		return "not known to this server"
	}
	return s
}

var granted = regexp.MustCompile(`(?i)^GRANT (.*?) ON \*\.\* `)

// checkGrants looks for the rights that reading the binlog takes, and says what the user does not see without others.
// SELECT on the tables is seen by looking at them. It reports whether the binlog may be read.
func checkGrants(c *config.Config, info *canal.SourceInfo, r *Report) bool {
	have := rightsOf(info.Grants)
	if have["ALL PRIVILEGES"] {
		r.add(OK, fmt.Sprintf("user %s has all rights", c.Source.User), "")
		return true
	}
	need := []string{"REPLICATION SLAVE", "REPLICATION CLIENT"}
	if info.Flavor == event.MariaDB {
		need = []string{"REPLICATION SLAVE", "BINLOG MONITOR"}
		// What MariaDB 10.5 split up counts under its old name too.
		have["BINLOG MONITOR"] = have["BINLOG MONITOR"] || have["REPLICATION CLIENT"] || have["SUPER"]
	}
	var lacking []string
	for _, n := range need {
		if !have[n] && !have["SUPER"] {
			lacking = append(lacking, n)
		}
	}
	if len(lacking) > 0 {
		r.add(Fail, fmt.Sprintf("user %s lacks %s", c.Source.User, strings.Join(lacking, " and ")),
			fmt.Sprintf("GRANT %s ON *.* TO %s;", strings.Join(lacking, ", "), account(c, info)))
		return false
	}
	r.add(OK, fmt.Sprintf("user %s may read the binlog", c.Source.User), "")
	for _, u := range blindSpots(info.Flavor, have, len(c.Source.Addresses) > 1) {
		r.add(OK, fmt.Sprintf("user %s has no right %s: %s", c.Source.User, u.right, u.then), "")
	}
	return true
}

// grantee finds the account in a grant.
var grantee = regexp.MustCompile("(?i)^GRANT .* TO ((?:`[^`]*`|'[^']*')@(?:`[^`]*`|'[^']*'))")

// account returns the account that we are to the server, as it prints it: its host is seldom the one that we come from.
// Where the server does not say, any host is meant.
func account(c *config.Config, info *canal.SourceInfo) string {
	for _, g := range info.Grants {
		if m := grantee.FindStringSubmatch(g); m != nil {
			return m[1]
		}
	}
	return "'" + strings.ReplaceAll(c.Source.User, "'", "''") + "'@'%'"
}

// rightsOf returns the rights on everything that grants give, as SHOW GRANTS prints them.
func rightsOf(grants []string) map[string]bool {
	have := map[string]bool{}
	for _, g := range grants {
		if m := granted.FindStringSubmatch(g); m != nil {
			for right := range strings.SplitSeq(m[1], ",") {
				have[strings.ToUpper(strings.TrimSpace(right))] = true
			}
		}
	}
	return have
}

// without is what follows if a user has no right.
type without struct{ right, then string }

// blindSpots returns the rights that reading does not take, and what is not seen without them.
func blindSpots(flavor event.Flavor, have map[string]bool, several bool) (all []without) {
	if flavor == event.MySQL && !have["XA_RECOVER_ADMIN"] {
		all = append(all, without{
			"XA_RECOVER_ADMIN", "an XA transaction that is committed soon after a start of freshet leaves a doubt",
		})
	}
	monitors := have["SLAVE MONITOR"] || have["REPLICA MONITOR"] || have["SUPER"]
	if flavor == event.MariaDB && several && !monitors {
		all = append(all, without{"SLAVE MONITOR", "a replica that is stopped counts as a primary"})
	}
	if !have["TRIGGER"] {
		all = append(all, without{
			"TRIGGER on *.*", "if a session logs its changes as statements, those that triggers make in mapped tables are not seen",
		})
	}
	return all
}
