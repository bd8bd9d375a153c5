package canal

import (
	"context"
	"strconv"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
)

// Retention says for how long the source keeps its binlogs: as its settings say, and as is seen.
type Retention struct {
	// Setting is the setting that decides, and Kept what it says; 0: nothing is purged by time.
	Setting string
	Kept    time.Duration
	// Soon says that binlogs are purged as soon as nothing of the service itself needs them: Amazon RDS and Aurora
	// without `binlog retention hours`.
	Soon bool
	// Unknown says that a service decides, and does not tell us.
	Unknown bool
	// Oldest is when the oldest binlog that is left was begun, by the source's clock. Zero while no file has been
	// purged, when its age says nothing, or while it is not known.
	Oldest time.Time
}

// For returns for how long binlogs are kept, 0: forever. What was seen counts where it is less than the setting: files
// are purged by hand, by size, and by services in their own way.
func (r *Retention) For(now time.Time) time.Duration {
	if r.Oldest.IsZero() {
		return r.Kept
	}
	age := max(now.Sub(r.Oldest), time.Second)
	if r.Kept == 0 || age < r.Kept {
		return age
	}
	return r.Kept
}

// fromSettings takes what the variables say.
// Source: MySQL Reference Manual, "Binary Logging Options and Variables"; MariaDB, "Replication and Binary Log System
// Variables".
func (r *Retention) fromSettings(v map[string]string) {
	r.Setting, r.Kept = "binlog_expire_logs_seconds", seconds(v["binlog_expire_logs_seconds"])
	if r.Kept == 0 {
		if days, _ := strconv.ParseFloat(v["expire_logs_days"], 64); days > 0 { // MariaDB's may be a fraction
			r.Setting, r.Kept = "expire_logs_days", time.Duration(days*float64(24*time.Hour))
		}
	}
	if v["binlog_expire_logs_auto_purge"] == "OFF" {
		r.Setting, r.Kept = "binlog_expire_logs_auto_purge", 0
	}
}

// RDSHours is the setting of Amazon RDS and Aurora that decides, whatever the variables say.
// Source: Amazon RDS User Guide, "Configuring MySQL binary logging", mysql.rds_show_configuration.
const RDSHours = "binlog retention hours"

// rdsRoot is where the programs of such a server are.
const rdsRoot = "/rdsdbbin/"

// fromRDS asks what mysql.rds_show_configuration shows.
func (r *Retention) fromRDS(s *session) {
	*r = Retention{Setting: RDSHours}
	rows, err := s.rows("SELECT value FROM mysql.rds_configuration WHERE name = " + quote(RDSHours))
	switch {
	case err != nil || len(rows) != 1:
		r.Unknown = true
	case rows[0][0] == "": // NULL
		r.Soon = true
	default:
		hours, err := strconv.Atoi(rows[0][0])
		r.Kept, r.Unknown = time.Duration(hours)*time.Hour, err != nil
	}
}

// oldestBinlog returns when the oldest binlog file was begun; the zero time while it is the first that there ever was,
// unless it must be known all the same.
func (o *Options) oldestBinlog(ctx context.Context, s *session, info *SourceInfo, always bool) (time.Time, error) {
	files, err := s.binlogFiles()
	if err != nil || len(files) == 0 {
		return time.Time{}, err
	}
	if _, n, err := event.SplitFile(files[0].Name); err != nil || n <= 1 && !always {
		return time.Time{}, err
	}
	var begun time.Time
	err = o.scan(ctx, info, binlogPos{file: files[0].Name, pos: firstEvent},
		func(_ *walk, _ binlogPos, h binlog.Header, _ []byte) error {
			if h.Timestamp == 0 {
				return nil
			}
			begun = time.Unix(int64(h.Timestamp), 0)
			return errEnough
		})
	return begun, err
}

// lookAtRetention is how often the oldest binlog is looked at.
const lookAtRetention = 5 * time.Minute

// watchRetention keeps the retention up to date until ctx ends. What cannot be asked is asked again later: the number
// is for display only.
func (c *Canal) watchRetention(ctx context.Context) {
	t := time.NewTicker(lookAtRetention)
	defer t.Stop()
	for {
		if r, err := c.o.retention(ctx); err == nil {
			c.n.retention.Store(&r)
		} else if ctx.Err() == nil {
			c.o.Logger.Debug("the age of the oldest binlog is not known", "source", c.o.Source, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// retention asks the source, on a connection of its own.
func (o *Options) retention(ctx context.Context) (Retention, error) {
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return Retention{}, err
	}
	defer s.close()
	info, err := o.identify(s)
	if err != nil {
		return Retention{}, err
	}
	if err := s.settings(info); err != nil {
		return Retention{}, err
	}
	r := &info.Retention
	r.Oldest, err = o.oldestBinlog(ctx, s, info, r.Soon || r.Unknown)
	return *r, err
}
