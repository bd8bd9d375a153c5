package canal

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// Lack is a reason for which changes of mapped tables are not in the source's binlog, now and as long as it is set so.
type Lack struct {
	// Setting is what leaves them out.
	Setting string
	// What is a sentence without its end that says what is left out, Do what to do.
	What, Do string
}

// lacks finds out what leaves changes of wanted tables out of the binlog. What a session does to itself (sql_log_bin=0)
// cannot be seen. Rights that are missing make it see less: what it cannot ask is no reason.
func (o *Options) lacks(s *session, info *SourceInfo) []Lack {
	out := o.filtered(s, info)
	replicas := s.replicaStatus(info.Flavor)
	if !info.LogReplicaUpdates {
		switch {
		case info.Galera:
			out = append(out, Lack{
				"log_slave_updates", "changes that are made on other nodes of the Galera cluster are not in this node's binlog " +
					"(log_slave_updates is OFF)",
				"set log_slave_updates=ON on every node, and restart it",
			})
		case len(replicas) > 0 || !info.Replicated.IsEmpty():
			out = append(out, Lack{
				info.replicaUpdates(), "what this server replicates from another is not in its binlog (" + info.replicaUpdates() +
					" is OFF)",
				"set " + info.replicaUpdates() + "=ON and restart the server, or read the server that it replicates from",
			})
		}
	}
	for _, r := range replicas {
		for _, name := range replicaFilters {
			if v := r[name]; v != "" {
				out = append(out, Lack{
					name, "this server leaves out some of what it replicates (" + name + ": " + v +
						"), so its binlog has not all changes of the server before it",
					"remove the filter, or read the server that it replicates from, if the application fills its cache from there",
				})
			}
		}
	}
	return out
}

// replicaFilters are the columns of SHOW REPLICA STATUS that name filters.
// Source: MySQL Reference Manual, "SHOW REPLICA STATUS Statement"; MariaDB, "SHOW REPLICA STATUS".
var replicaFilters = []string{
	"replicate_do_db", "replicate_ignore_db", "replicate_do_table", "replicate_ignore_table", "replicate_wild_do_table",
	"replicate_wild_ignore_table", "replicate_rewrite_db", "replicate_do_domain_ids", "replicate_ignore_domain_ids",
}

// filtered asks for --binlog-do-db and --binlog-ignore-db, as far as they touch schemas of wanted tables.
// Source: MySQL Reference Manual, "Binary Logging Options and Variables".
func (o *Options) filtered(s *session, info *SourceInfo) (out []Lack) {
	var status []map[string]string
	for _, q := range logStatusStatements(info.Flavor) {
		var err error
		if status, err = s.named(q); err == nil {
			break
		}
	}
	if len(status) == 0 {
		return nil
	}
	doOnly, ignored := list(status[0]["binlog_do_db"]), list(status[0]["binlog_ignore_db"])
	if len(doOnly)+len(ignored) == 0 {
		return nil
	}
	schemas, err := s.rows("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ORDER BY 1")
	if err != nil {
		return nil
	}
	fold, err := s.foldsNames()
	if err != nil {
		return nil
	}
	left := func(setting string, left func(schema string) bool) {
		var names []string
		for _, r := range schemas {
			if o.wanted(fold, r[0], "") && left(r[0]) {
				names = append(names, r[0])
			}
		}
		if len(names) > 0 {
			out = append(out, Lack{
				setting, "changes of mapped tables in " + strings.Join(names, ", ") + " are not in the binlog (" + setting + ")",
				"remove " + setting + " from the server's options, and restart it",
			})
		}
	}
	// With binlog-do-db the other list is not looked at.
	if len(doOnly) > 0 {
		left("binlog-do-db", func(schema string) bool { return !slices.Contains(doOnly, schema) })
		return out
	}
	left("binlog-ignore-db", func(schema string) bool { return slices.Contains(ignored, schema) })
	return out
}

// list reads a list with commas; none has an empty name.
func list(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(v string) bool { return v == "" })
}

// replicaStatus returns a row for each server that this one replicates from, by the names of their columns in lower
// case; none if we may not know.
func (s *session) replicaStatus(f event.Flavor) []map[string]string {
	rows, _ := s.replication(f)
	return rows
}

// replication is replicaStatus, and reports whether we may know.
func (s *session) replication(f event.Flavor) (rows []map[string]string, known bool) {
	statements := []string{"SHOW REPLICA STATUS", "SHOW SLAVE STATUS"}
	if f == event.MariaDB {
		statements = []string{"SHOW ALL SLAVES STATUS"}
	}
	for _, q := range statements {
		if rows, err := s.named(q); err == nil {
			return rows, true
		}
	}
	return nil, false
}

// replicaUpdates is what the server calls the setting.
func (i *SourceInfo) replicaUpdates() string {
	if i.Flavor == event.MariaDB {
		return "log_slave_updates"
	}
	return "log_replica_updates"
}

// doubtLacks records that the binlog of the server that answers has not all changes. Later looks record only what has
// been set since, and what was answered though it is still so: changes are left out after the answer, too.
func (c *Canal) doubtLacks(ctx context.Context, s *session, info *SourceInfo, later bool) error {
	lacks := c.o.lacks(s, info)
	c.mu.Lock()
	defer c.mu.Unlock()
	was, open := c.lacking, c.lacks.open
	c.lacking, c.lacks = map[string]bool{}, postponed{}
	for _, lack := range lacks {
		c.lacking[lack.What] = true
		d := doubt.Doubt{
			Cause: alarm.BinlogIncomplete, Source: c.o.Source, Subject: lack.Setting,
			Message: "source " + c.o.Source + ": " + lack.What + ", so their keys stay stale: " + lack.Do,
		}.Named()
		if later && was[lack.What] {
			if _, is := open[d.ID]; is { // else somebody has dismissed it
				c.lacks.add(d)
			}
			continue
		}
		if err := c.o.Doubts.Record(ctx, d); err != nil {
			return err
		}
		c.lacks.add(d)
	}
	return c.lacks.keep(ctx, &c.o)
}

// lookAtLacks is how often it is looked whether the source was set so that its binlog lacks changes.
const lookAtLacks = time.Minute

// watchLacks looks until ctx ends: a server becomes a replica, or gets a filter, while it is read.
func (c *Canal) watchLacks(ctx context.Context) {
	if c.o.Follow {
		return
	}
	for retry.Beat(ctx, lookAtLacks) == nil {
		if err := c.lookForLacks(ctx); err != nil && ctx.Err() == nil {
			c.o.Logger.Debug("it is not known whether the binlog lacks changes", "source", c.o.Source, "error", err)
		}
	}
}

// lookForLacks looks once, on a connection of its own.
func (c *Canal) lookForLacks(ctx context.Context) error {
	s, err := c.o.connect(ctx, queryTimeout)
	if err != nil {
		return err
	}
	defer s.quit()
	info, err := c.o.identify(s)
	if err == nil {
		err = s.settings(info)
	}
	if err != nil {
		return err
	}
	if read, _ := c.vis.stream(); info.Server != read {
		return nil // which is found elsewhere
	}
	return c.doubtLacks(ctx, s, info, true)
}
