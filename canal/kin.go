package canal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// ForeignError says that the server has another database than the one that the checkpoint of its source is of: two
// databases are read under one name. It is a [retry.ErrHalt].
type ForeignError struct {
	// Source is the name, Address and Server are those of the server that answers, and Was is the server of the
	// checkpoint.
	Source, Address, Server, Was string
	// Reason is how that is known, in words.
	Reason string
	// Templates are those of the keys that nobody keeps fresh; nil: not known.
	Templates []string
}

// Error implements error.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("two databases under one source.name: the checkpoint of source %s is of server %s, but %s is "+
		"server %s, which has another database: %s; "+
		"changes made there are not read, so keys that they made stale stay cached: give each database a source.name of its own, and clear those keys; "+
		"if this server has taken the place of the other, clear the mapped keys and choose where to go on with `freshet position set … --skip`",
		e.Source, e.Was, e.Address, e.Server, e.Reason)
}

// Is makes a ForeignError a [retry.ErrHalt].
func (e *ForeignError) Is(target error) bool { return target == retry.ErrHalt }

// Doubt returns the doubt that the caller must record.
func (e *ForeignError) Doubt() doubt.Doubt {
	return doubt.Doubt{
		Cause: alarm.SourceShared, Source: e.Source, Subject: e.Server, Templates: e.Templates, Message: e.Error(),
	}
}

// Kin finds out whether a server has the database of a checkpoint that another reader writes, or one of its own: a
// replica has transactions of the checkpoint, or will have them; another database never will. One goroutine at a time
// uses it.
type Kin struct {
	o Options
	// known is the server that has what the checkpoint had; "" while none was found.
	known string
	last  sighting
}

// sighting is what the checkpoint and the server had at one look.
type sighting struct {
	server         string
	read, executed event.GTIDSet
}

// NewKin returns a Kin for the server that the options name.
func NewKin(o Options) (*Kin, error) {
	o, err := o.withDefaults()
	return &Kin{o: o}, err
}

// Compare asks the server who it is, and compares that with the checkpoint's position, unless it has found before that
// this server has what the checkpoint had. It returns a [*ForeignError] if the server has another database. Some differ
// from a replica only at a second look, a while later.
func (k *Kin) Compare(ctx context.Context, position func(context.Context) (event.Position, error)) error {
	s, err := k.o.connect(ctx, queryTimeout)
	if err != nil {
		return err
	}
	defer s.close()
	info, err := k.o.identify(s)
	if err != nil || info.Server == k.known {
		return err
	}
	p, err := position(ctx)
	if err != nil || p.IsZero() {
		return err
	}
	if err := s.executed(info); err != nil { // after the position was read: what is lacking now was finished elsewhere
		return err
	}
	same, err := k.o.compare(ctx, s, info, &p)
	switch ofAll, why := info.HasGTIDsOfAll(); {
	case err != nil:
		return err
	case same:
		k.known, k.last = info.Server, sighting{}
		return nil
	case !ofAll:
		k.o.Alarms.Raise(alarm.SourceBehind,
			fmt.Sprintf("source %s is read from server %s, and %s is server %s: this reader could not "+
				"go on there, since its %s, and whether it is the same database cannot be known; if it is another one, its changes are read by nobody: give it a source.name of its own",
				k.o.Source, p.Server, s.address, info.Server, why))
		return nil
	}
	return k.grown(s, info, &p)
}

// grown looks for a server that goes a way of its own: it replicates from nobody, still lacks what the checkpoint had
// at the look before, and has executed others since.
func (k *Kin) grown(s *session, info *SourceInfo, p *event.Position) error {
	was := k.last
	k.last = sighting{}
	if s.replicates(info.Flavor) {
		return nil
	}
	k.last = sighting{info.Server, p.GTIDs.Clone(), info.Executed.Clone()}
	if was.server != info.Server {
		return nil
	}
	lacks, grew := was.read.Subtract(&info.Executed), info.Executed.Subtract(&was.executed)
	if info.Flavor == event.MySQL { // on MariaDB numbers do not say whose they are
		grew = grew.Subtract(&p.GTIDs) // what a backup is followed by
	}
	if lacks.IsEmpty() || grew.IsEmpty() {
		return nil
	}
	return k.o.foreign(info, p, "it replicates from no server, lacks transactions of the checkpoint, and executes others")
}

func (o *Options) foreign(info *SourceInfo, p *event.Position, reason string) error {
	return &ForeignError{
		Source: o.Source, Address: o.Servers.Current(), Server: info.Server, Was: p.Server, Reason: reason,
		Templates: o.Templates,
	}
}

// compare reports whether the server surely has what p had. The error is a [*ForeignError] if it surely has another
// database. Neither: it may be a replica that lags.
func (o *Options) compare(ctx context.Context, s *session, info *SourceInfo, p *event.Position) (same bool, err error) {
	switch ofAll, _ := info.HasGTIDsOfAll(); {
	case p.Flavor != "" && p.Flavor != info.Flavor:
		return false, o.foreign(info, p, fmt.Sprintf("the checkpoint is of %s, and the server is %s", p.Flavor, info.Flavor))
	case p.Server == info.Server:
		return o.compareBegun(ctx, s, info, p)
	case !ofAll || p.GTIDs.IsEmpty():
		return false, nil
	case info.Flavor == event.MariaDB:
		return o.compareMariaDB(ctx, s, info, p)
	}
	return o.compareMySQL(s, info, p)
}

// compareBegun compares servers of one identity: MariaDB's may be the same on two machines, and a server that was
// copied with all of its files has that of the first.
func (o *Options) compareBegun(ctx context.Context, s *session, info *SourceInfo, p *event.Position) (same bool,
	err error,
) {
	known, _, err := splitBegun(p.State)
	if err == nil {
		err = o.checkBegun(ctx, s, info, p, known)
	}
	if gap := (*GapError)(nil); errors.As(err, &gap) {
		return false, o.foreign(info, p, "it has the same identity, but another binlog (or its binlog was begun again): "+
			gap.Reason)
	}
	return err == nil, err
}

// compareMySQL compares sets of GTIDs, which hold all that a server ever executed, what it has purged too. A replica
// has executed something of a server that the checkpoint names, or nothing yet.
func (o *Options) compareMySQL(s *session, info *SourceInfo, p *event.Position) (same bool, err error) {
	lacks := p.GTIDs.Subtract(&info.Executed)
	if lacks.IsEmpty() || info.Executed.IsEmpty() || p.GTIDs.SharesOrigin(&info.Executed) {
		return lacks.IsEmpty(), nil
	}
	if !s.replicates(info.Flavor) {
		return false, o.foreign(info, p,
			"it has no transaction of any server that the checkpoint names, and replicates from no server")
	}
	rows, _ := s.replication(info.Flavor)
	var received event.GTIDSet
	for _, r := range rows {
		set, err := event.ParseGTIDSet(event.MySQL, r["retrieved_gtid_set"])
		if err != nil {
			return false, fmt.Errorf("retrieved_gtid_set: %w", err)
		}
		received.Union(&set)
	}
	if received.IsEmpty() || p.GTIDs.SharesOrigin(&received) {
		return false, nil
	}
	return false, o.foreign(info, p,
		"neither it nor what it replicates has a transaction of any server that the checkpoint names")
}

// compareMariaDB compares what MariaDB's GTIDs tell: of each domain, the last transaction of each server. Their numbers
// say little, since every database counts from 1 and the default server id is 1 as well. But when a transaction was
// made is the same in the binlogs of all servers that have it.
func (o *Options) compareMariaDB(ctx context.Context, s *session, info *SourceInfo, p *event.Position) (same bool,
	err error,
) {
	logged, err := s.binlogState()
	if err != nil {
		return false, err
	}
	var held []event.GTID // in the binlog
	whole, apart := true, ""
	p.GTIDs.Each(func(r event.GTIDRange) {
		g := r.First
		g.Number = r.Last
		switch {
		case logged[origin{g.Domain, g.Server}] >= g.Number:
			held = append(held, g)
		case info.Replicated.Contains(g): // by a replica that logs nothing, or before it was set up from a backup
			whole = false
		default:
			whole = false
			if info.Executed.Contains(g) { // by number
				apart = g.String()
			}
		}
	})
	if whole && !p.Committed.IsZero() {
		match, none, err := o.committedThen(ctx, s, info, held, p.Committed)
		if err == nil && none {
			err = o.foreign(info, p, "its transaction "+held[0].String()+
				" was not committed when the checkpoint's of that number was")
		}
		return match, err
	}
	if apart != "" && !s.replicates(info.Flavor) {
		return false, o.foreign(info, p, "it has gone beyond the number of the checkpoint's transaction "+apart+
			" without having it, and replicates from no server")
	}
	return false, nil
}

// origin is where transactions get their numbers on MariaDB.
type origin struct{ domain, server uint32 }

// binlogState returns the last number of each origin in MariaDB's binlog: see [event.ParseBinlogState].
func (s *session) binlogState() (map[origin]uint64, error) {
	r, err := s.row("SELECT @@global.gtid_binlog_state")
	if err != nil {
		return nil, err
	}
	last, err := event.ParseBinlogState(r[0])
	if err != nil {
		return nil, fmt.Errorf("gtid_binlog_state: %w", err)
	}
	state := map[origin]uint64{}
	for _, g := range last {
		state[origin{g.Domain, g.Server}] = g.Number
	}
	return state, nil
}

const (
	// clockSlack is by how much the times of one transaction may differ between two binlogs: they should not at all.
	clockSlack = time.Minute
	// longestIdle is how long a transaction may wait for its COMMIT: that ends with wait_timeout, whose default this
	// is. Source: MariaDB, "Server System Variables", wait_timeout.
	longestIdle = 8 * time.Hour
)

// span is when a transaction was made, by its events.
type span struct{ first, last time.Time }

// has reports whether the transaction may be one that another binlog says was committed at a time. A replica says when
// the last rows were changed, and the server that wrote them when COMMIT came, which may be long after.
func (s span) has(at time.Time) bool {
	return !at.Before(s.first.Add(-clockSlack)) && !at.After(s.last.Add(clockSlack))
}

// committedThen reports whether any of the transactions was committed at a time, and whether surely none was.
func (o *Options) committedThen(ctx context.Context, s *session, info *SourceInfo, gtids []event.GTID,
	at time.Time,
) (match, none bool, err error) {
	files, err := s.binlogFiles()
	if err != nil {
		return false, false, err
	}
	none = true
	for _, g := range gtids {
		made, err := o.made(ctx, s, info, files, g)
		if err != nil {
			return false, false, err
		}
		match = match || made.has(at)
		purged, idle := made.last.IsZero(), at.After(made.last) && at.Sub(made.last) <= longestIdle
		none = none && !purged && !idle
	}
	return match, none && !match, nil
}

// made returns when a transaction in MariaDB's binlog was made; the zero span if it was purged.
func (o *Options) made(ctx context.Context, s *session, info *SourceInfo, files []BinlogFile, g event.GTID) (m span,
	err error,
) {
	var failed error
	// The first file that begins after it: it is in the one before.
	i := sort.Search(len(files), func(i int) bool {
		before, err := s.gtidPos(binlogPos{file: files[i].Name, pos: firstEvent})
		failed = errors.Join(failed, err)
		return before.Contains(g)
	})
	if failed != nil || i == 0 {
		return m, failed
	}
	err = o.scan(ctx, info, binlogPos{file: files[i-1].Name, pos: firstEvent},
		func(_ *walk, begin binlogPos, h binlog.Header, body []byte) error {
			switch {
			case begin.file != files[i-1].Name, !m.last.IsZero() && beginsGroup(h.Type):
				return errEnough
			case h.Type == binlog.TypeMariaGTID:
				one, err := binlog.ParseGTID(h, body)
				if err != nil || one.GTID != g {
					return err
				}
				m.first, m.last = committedAt(0, h), committedAt(0, h)
			case !m.last.IsZero():
				m = m.with(committedAt(0, h))
			}
			return nil
		})
	return m, err
}

// with returns the span with an event of the transaction.
func (s span) with(at time.Time) span {
	if at.Before(s.first) {
		s.first = at
	}
	if at.After(s.last) {
		s.last = at
	}
	return s
}

// standing is how a server stands to others: replicates says that it gets transactions from another one, or may;
// stopped that it surely gets none at present, though it is set up to; member that it is set up as one of a group of
// MySQL's; and eventual that such a one, if it becomes the primary, lets readers see what was before changes that it
// has yet to apply.
type standing struct{ replicates, stopped, member, eventual bool }

// replicates is that of [session.standing].
func (s *session) replicates(f event.Flavor) bool { return s.standing(f).replicates }

// standing asks how the server stands to others. A user that may not ask MariaDB for its replicas' threads, as ours
// need not, sees how many run.
func (s *session) standing(f event.Flavor) (is standing) {
	rows, known := s.replication(f)
	v, err := s.pairs("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('group_replication_group_name', " +
		"'group_replication_consistency', 'wsrep_on')")
	is.member = v["group_replication_group_name"] != ""
	is.eventual = is.member && !strings.Contains(v["group_replication_consistency"], "BEFORE") // unknown before 8.0.14
	inCluster := err != nil || is.member || v["wsrep_on"] == "ON"                              // of Galera
	if known {
		is.replicates = len(rows) > 0 || inCluster
		is.stopped = len(rows) > 0 && !inCluster && !slices.ContainsFunc(rows, isRunning)
		return is
	}
	v, err = s.pairs("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
	is.replicates = f != event.MariaDB || err != nil || v["slaves_running"] != "0" || inCluster
	return is
}

// isRunning reports whether a thread of a replica runs, or is about to.
func isRunning(status map[string]string) bool {
	return slices.ContainsFunc(
		[]string{"replica_io_running", "replica_sql_running", "slave_io_running", "slave_sql_running"},
		func(thread string) bool { return status[thread] != "" && status[thread] != "No" },
	)
}
