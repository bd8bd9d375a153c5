package rebuild

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/query"
)

// The defaults of [Options] and [Query].
const (
	DefaultSource   = "default"
	DefaultPool     = 4
	DefaultTimeout  = 5 * time.Second
	DefaultMaxBytes = 8 << 20
	DefaultMaxIdle  = time.Minute
)

// Query is a query that the configuration names.
type Query struct {
	// Query is its text, its parameters, and the ID that asks for it.
	query.Query
	// Schema is where tables without a schema are looked up: that of the mapping's table. "": nowhere, each table must
	// have its schema.
	Schema string
	// As is how the value is kept. A string has one column.
	As event.Form
	// Many allows any number of rows: a JSON array of objects, or as a hash two columns, the fields' names and their
	// values. Else there is one row, or none.
	Many bool
	// DecimalNumbers writes DECIMAL as numbers in JSON, not as strings.
	DecimalNumbers bool
	// ExpireAt, when above 0, says that who writes the value puts a member expire_at into it: no column may be called
	// so.
	ExpireAt time.Duration
	// Timeout is how long it may run. Default: 5 s.
	Timeout time.Duration
	// Server is the host:port of the replica that it runs on, as long as that keeps up; "": it runs on the source.
	Server string
	// Mapping is the ordinal of its mapping in the configuration, from 0, and Table that one's pattern: for counting.
	Mapping int
	Table   string
	// Where is where it stands, file:line:column, for sentences.
	Where string
}

// name is what sentences call the query.
func (q *Query) name() string {
	s := fmt.Sprintf("the query of mapping %d (%s)", q.Mapping+1, q.Table)
	if q.Where != "" {
		s += " at " + q.Where
	}
	return s
}

// Options say where queries run, and which. The zero value of a field is the default that it names.
type Options struct {
	// Source is the source's name: queries for other sources are refused. Default: "default".
	Source string
	// Address is the server's host:port, or the path of its Unix socket. Required.
	Address string
	// User and Password log in. The user needs SELECT on what the queries read. User is required. The password is read at
	// each login; what a command has printed is used again until it is refused, since sessions are replaced each minute.
	User     string
	Password *credential.Source
	// TLS encrypts the connections; nil: not. With TLSOptional a server without TLS is talked to in clear.
	TLS         credential.TLS
	TLSOptional bool
	// ReplicaTLS is TLS for the servers that queries name.
	ReplicaTLS credential.TLS
	// Queries are those that may be asked for. Several may have one ID: they are the same but for their timeouts, of
	// which the longest counts, and their servers: where these differ, it is the source.
	Queries []Query
	// Pool is how many connections to a server there are at most, and how many queries run at once. Default: 4.
	Pool int
	// MaxBytes bounds a value. A connection may hold some times as much while it reads one. Default: 8 MiB.
	MaxBytes int
	// MaxIdle is for how long a connection is kept unused. Default: a minute.
	MaxIdle time.Duration
	// Dial makes the connections to the source, and DialReplica others. Default: a net.Dialer.
	Dial, DialReplica func(ctx context.Context, network, address string) (net.Conn, error)
	// Registerer takes the metrics freshet_rebuild_*. Nil: they are kept, but registered nowhere.
	Registerer prometheus.Registerer
}

// withDefaults returns the options filled in, or all that is wrong with them.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Address == "" {
		errs = append(errs, errors.New("no address"))
	}
	if o.User == "" {
		errs = append(errs, errors.New("no user"))
	}
	if o.Pool < 0 || o.MaxBytes < 0 || o.MaxIdle < 0 {
		errs = append(errs, errors.New("a limit is negative"))
	}
	for i := range o.Queries {
		q := &o.Queries[i]
		switch {
		case q.Text == "" || q.ID == "":
			errs = append(errs, fmt.Errorf("%s has no text or no fingerprint", q.name()))
		case q.As == event.FormString && q.Many:
			errs = append(errs, fmt.Errorf("%s: a string cannot hold many rows: write as: json, or rows: one", q.name()))
		case q.Timeout < 0:
			errs = append(errs, fmt.Errorf("%s: its timeout is negative", q.name()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, fmt.Errorf("rebuild: %w", err)
	}
	if o.Source == "" {
		o.Source = DefaultSource
	}
	if o.Pool == 0 {
		o.Pool = DefaultPool
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxIdle == 0 {
		o.MaxIdle = DefaultMaxIdle
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.DialReplica == nil {
		o.DialReplica = new(net.Dialer).DialContext
	}
	return o, nil
}
