package canal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// The defaults of [Options].
const (
	DefaultHeartbeat   = time.Second
	DefaultSource      = "default"
	DefaultFillTimeout = 30 * time.Second
)

// minSilence is the least time without a byte from the server that counts as a dead connection.
const minSilence = 3 * time.Second

// Options say what to read, and how. The zero value of a field is the default that it names.
type Options struct {
	// Source is the source's name in marks. Default: "default".
	Source string
	// Term is the term of this reader in marks; see [event.Mark].
	Term uint64
	// Address is the server's host:port, or the path of its Unix socket. Required, unless Servers are given.
	Address string
	// Servers are the addresses of one or several servers, and the one that is read; nil: Address alone. Several need
	// GTIDs.
	Servers *Servers
	// Follow says that another canal, which has the same Servers, chooses the one to read.
	Follow bool
	// Templates are those of the keys that changes lead to: what is in doubt if the server has another database. nil: all
	// that there are.
	Templates []string
	// User and Password log in. The user needs REPLICATION SLAVE, REPLICATION CLIENT (MariaDB: also BINLOG MONITOR)
	// and SELECT on the mapped tables. User is required. The password is read at each login.
	User     string
	Password *credential.Source
	// TLS encrypts the connections; nil: not. With TLSOptional a server without TLS is talked to in clear.
	TLS         credential.TLS
	TLSOptional bool
	// Flavor is what the server must be; "": whatever it says that it is.
	Flavor event.Flavor
	// ServerID is what we call ourselves among the source's replicas; it must differ from theirs. 0: one is drawn for
	// each canal, and another one if that is taken.
	ServerID uint32
	drawn    uint32
	// Start is where a first start begins: "now" (also ""), "earliest", "gtid:<set>" or "<file>:<position>".
	Start string
	// Heartbeat is how often the source is asked what everybody can read, and how often an idle source says that
	// it is alive; three of them in silence, but at least 3 s, and the connection is created again. Default: 1 s.
	Heartbeat time.Duration
	// FillFrom are the servers, host:port, that readers fill the cache from, if not from the source itself: a change is
	// visible once all of them have it. A name with several addresses means all of them. They are asked with the
	// source's user and password, and with its TLS, each under the name in FillFrom unless that names another. Both kinds
	// of server need GTIDs.
	FillFrom []string
	// FillTimeout is how long one of them may be silent, or lack a change that the source has, before it is left out: a
	// doubt ([alarm.FillServerLeftOut]) until it is back, has all, and readers are over that take FillSettles at most from
	// reading to writing. Default: 30 s. Readers of a server that took over and lagged are waited for in the same way.
	FillTimeout, FillSettles time.Duration
	// Logged says that what is before the checkpoint is in an event log, and need not be finished.
	Logged bool
	// FillLag is how much later than on the source changes are visible to readers that fill from what cannot be asked.
	FillLag time.Duration
	// UntilCaughtUp ends Run once everything that the source held at its start has been handed over and is visible.
	UntilCaughtUp bool
	// Wanted reports whether any mapping names the table, or with an empty table any table of the schema. Rows of
	// others are stepped over undecoded. Nil: all are wanted. It is called on the canal's goroutine, and not for each
	// row. The names are those that the server itself uses, in lower case where it compares names without letter case.
	Wanted func(schema, table string) bool
	// WantedFolded is asked instead of Wanted where the server compares names without letter case (its
	// lower_case_table_names is not 0). Nil: Wanted is.
	WantedFolded func(schema, table string) bool
	// Uses reports whether a column of a table is used, of which only the name counts. Nil: each is.
	Uses func(t *event.Table, column string) bool
	// IgnoreCascades leaves alone what foreign keys change without row events.
	IgnoreCascades bool
	// Dial makes the connections. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Alarms hears what an operator must hear. Nil: it is logged to slog.Default.
	Alarms *alarm.Board
	// FirstStart is called when there is no checkpoint, with where reading begins, before that is kept: what was cached
	// before then may be stale. Nil: nobody asks.
	FirstStart func(ctx context.Context, position string) error
	// Gap is why an earlier canal could not go on from the checkpoint ([IsGap]). This one goes on at what everybody can
	// read now, under a new epoch, once it is durable that all keys are in doubt ([alarm.BinlogGap]); it says so with the
	// step [Moved]. Nil: it goes on from the checkpoint.
	Gap error
	// Doubts keeps what may have left stale keys behind. Nil: it is logged as an alarm, and forgotten.
	Doubts *doubt.Book
	// Logger takes changes of state. Nil: slog.Default.
	Logger *slog.Logger
	// Registerer takes the metrics freshet_source_*. Nil: they are kept, but registered nowhere.
	Registerer prometheus.Registerer

	// briefly says that connections are made often, and end at once.
	briefly bool
	// regainEach is how long at least is between two attempts to read tables that we may not read, or that were locked.
	// Default: 10 s.
	regainEach time.Duration
	// lookEach is how often it is looked where the address leads to. Default: 5 s.
	lookEach time.Duration
}

// withDefaults returns the options filled in, or all that is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Servers == nil && o.Address != "" {
		o.Servers = NewServers(o.Address)
	}
	if o.Servers == nil || len(o.Servers.addresses) == 0 {
		errs = append(errs, errors.New("no address"))
	}
	if o.User == "" {
		errs = append(errs, errors.New("no user"))
	}
	switch o.Flavor {
	case "", event.MySQL, event.MariaDB:
	default:
		errs = append(errs, fmt.Errorf("flavor %q: want mysql or mariadb", o.Flavor))
	}
	if o.Heartbeat < 0 {
		errs = append(errs, fmt.Errorf("heartbeat %s is negative", o.Heartbeat))
	}
	if _, err := parseStart(o.Start); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return o, fmt.Errorf("source: %w", errors.Join(errs...))
	}
	if o.Gap != nil {
		o.Start = "now"
	}
	if o.Source == "" {
		o.Source = DefaultSource
	}
	o.drawn = drawServerID(nil)
	if o.Heartbeat == 0 {
		o.Heartbeat = DefaultHeartbeat
	}
	if o.lookEach == 0 {
		o.lookEach = lookAtServers
	}
	if o.regainEach == 0 {
		o.regainEach = regainEach
	}
	if o.FillTimeout == 0 {
		o.FillTimeout = DefaultFillTimeout
	}
	if o.Wanted == nil {
		o.Wanted = func(_, _ string) bool { return true }
	}
	if o.WantedFolded == nil {
		o.WantedFolded = o.Wanted
	}
	if o.Uses == nil {
		o.Uses = func(*event.Table, string) bool { return true }
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// wanted reports whether any mapping names the table, on a server that compares names without letter case or with.
func (o *Options) wanted(fold bool, schema, table string) bool {
	if fold {
		return o.WantedFolded(schema, table)
	}
	return o.Wanted(schema, table)
}

// silence is how long the source may say nothing.
func (o *Options) silence() time.Duration { return max(3*o.Heartbeat, minSilence) }

// earliest is the start at the oldest binlog that the source has.
const earliest = "earliest"

// start is where to begin, as the operator says it.
type start struct {
	now, earliest bool
	gtids         string
	file          string
	pos           uint64
}

// parseStart reads the option source.start.
func parseStart(s string) (start, error) {
	switch {
	case s == "" || s == "now":
		return start{now: true}, nil
	case s == earliest:
		return start{earliest: true}, nil
	case strings.HasPrefix(s, "gtid:"):
		set := strings.TrimSpace(strings.TrimPrefix(s, "gtid:"))
		_, errMySQL := event.ParseGTIDSet(event.MySQL, set)
		_, errMariaDB := event.ParseGTIDSet(event.MariaDB, set)
		if set == "" || (errMySQL != nil && errMariaDB != nil) {
			return start{}, fmt.Errorf("start %q: want gtid:<uuid>:1-100 (MySQL) or gtid:0-1-100 (MariaDB)", s)
		}
		return start{gtids: set}, nil
	}
	file, digits, ok := cutLast(s, ':')
	pos, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || pos < firstEvent {
		return start{}, fmt.Errorf("start %q: want now, earliest, gtid:<set> or <file>:<position>", s)
	}
	if _, _, err := event.SplitFile(file); err != nil || strings.ContainsAny(file, "'\\\x00") {
		return start{}, fmt.Errorf("start %q: %q is not the name of a binlog file", s, file)
	}
	return start{file: file, pos: pos}, nil
}
