package invalidator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// The defaults of [Options].
const (
	DefaultMaxInFlight = 200_000
	DefaultMaxPending  = 4_000_000
	DefaultMaxMemory   = 32 << 20
	DefaultTimeout     = time.Second

	DefaultQueryWorkers = 4
)

// Alarms is where the engine raises what an operator must hear about.
type Alarms interface {
	Raise(k alarm.Kind, message string)
}

// Rebuilder runs the queries that the configuration names. It may be called by several goroutines at once.
type Rebuilder interface {
	// Query runs the query of that fingerprint ([event.Effect].Query) against the source for each of the parameters, and
	// calls answer for each, in any order, with the value in the fields of a rebuild from row of the same form; missing
	// says that there was no row. An error that has a method Permanent() bool which returns true will come again whenever
	// it is tried. Errors name neither rows nor secrets: they are shown to operators. Once answer has returned false it
	// asks for no others, and leaves them without an answer.
	//
	// It must be a server that has executed after: the transactions whose changes the values answer, as far as they
	// have GTIDs. Another server that has taken over, or the one before it, may lack them.
	Query(ctx context.Context, source, id string, params []event.Fields, after *event.GTIDSet,
		answer func(i int, value event.Fields, missing bool, err error) (more bool))
}

// Hot counts what changes most.
type Hot interface {
	// Count is shown every batch once, before its keys are sent. It must not keep it, and must be quick. Several
	// goroutines call it at once.
	Count(b *event.Batch)
}

// Cluster says where keys live, if that is on several nodes.
type Cluster interface {
	// Layout asks the nodes for what they have. Where it names a node that it has named before, it is the same [Redis].
	Layout(ctx context.Context) (*Layout, error)
	// Release is called once a node is not used any more that is in no layout since.
	Release(r Redis)
	// String names the cluster for the operator.
	String() string
}

// Slots is the number of slots of a cluster.
const Slots = write.Slots

// Layout says which node of a cluster has which slots.
type Layout struct {
	// Nodes are those that have slots.
	Nodes []Redis
	// Owner is, by slot, the ordinal in Nodes of the one that has it; -1: none has.
	Owner [Slots]int16
	// Takers are the ordinals of the nodes that slots are being moved to.
	Takers map[uint16]int16
	// Portless is how many masters with slots say no port, as those do that have one for TLS only and no tls-cluster.
	Portless int
	// Strangers are addresses that led to nodes of another cluster, which are left out.
	Strangers []string
	// Masters are all that are known, those without slots as well. The engine hands them on only: [Engine.Masters].
	Masters []Master
}

// Unserved returns how many slots no node has.
func (l *Layout) Unserved() (n int) {
	for _, owner := range l.Owner {
		if owner < 0 {
			n++
		}
	}
	return n
}

// Master is a master of a Redis Cluster.
type Master struct {
	// ID is by which name the cluster knows it, Address host:port.
	ID, Address string
	// Looking makes a new connection for each look at the server.
	Looking *redis.Client
	// Node is where keys are sent, nil if it has no slots; Ordinal is that in [Layout].Nodes.
	Node    *Single
	Ordinal int16
	// Epoch is its configuration epoch: it rises when it takes slots from another.
	Epoch uint64
}

// Deps are what an [Engine] works with. Store is required, and either Redis or Cluster.
type Deps struct {
	// Redis is where keys are deleted and written.
	Redis Redis
	// Cluster is there instead if keys live on several nodes.
	Cluster Cluster
	// Rebuilder reads the values of keys that are rebuilt by query. nil: there is none, and such keys are deleted.
	Rebuilder Rebuilder
	// Hot may be nil: nothing is counted then.
	Hot Hot
	// Store keeps the keys in trouble.
	Store retry.Store
	// Alarms may be nil: alarms are then logged.
	Alarms Alarms
	// Latency takes how long first and final deletes take. Its maker registers it; nil: it is kept to the engine.
	Latency *latency.Stages
	// Registerer takes the metrics; nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Log may be nil: slog.Default().
	Log *slog.Logger
}

// Options configure an [Engine]. The zero value of each field means its default.
type Options struct {
	// MaxInFlight is how many keys may have been fetched and not yet been deleted once, over all partitions.
	// Beyond it nothing is fetched. Default 200 000.
	MaxInFlight int
	// MaxPending is how many keys may be unfinished, over all partitions: those in flight, and those that were
	// deleted once and wait for their final delete. Beyond it nothing is fetched. Default 4 000 000.
	MaxPending int
	// MaxMemory is about how many bytes all that is unfinished may hold. Beyond it nothing is fetched; a batch
	// that was fetched below it is kept, however large. Default 32 MiB.
	MaxMemory int64
	// RateLimit paces first actions, in keys per second over all partitions. Final ones are not paced: they can come
	// no faster than the first ones came. A mapping's own limit comes with its changes ([event.Origin].RateLimit).
	// Default 0: no limit.
	RateLimit int
	// GentleRate paces what is served gently ([Engine.ServeGently]): so many keys per second, each with a first and a
	// final action. Default 0: no limit.
	GentleRate int
	// KeyPrefix is put before every key that is sent to Redis. Parked keys and dead letters are stored without it.
	KeyPrefix string
	// Timeout is how long one round trip to Redis may take before Redis counts as away. Default 1 s.
	Timeout time.Duration
	// QueryWorkers is how many queries run at once to rebuild keys. Default 4.
	QueryWorkers int
	// ShortestD is the shortest second delete in use, where it is known beforehand: Redis is then watched closely
	// enough from the start. Otherwise it is learnt from the batches, and old news of the first moments is deleted
	// twice where once would have done. Default 0: not known.
	ShortestD time.Duration
	// Retry says what becomes of a key in trouble.
	Retry retry.Policy
}

// withDefaults returns o with every zero field set to its default, or all that is wrong with it.
func (o Options) withDefaults() (Options, error) {
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	if o.MaxPending == 0 {
		o.MaxPending = DefaultMaxPending
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMaxMemory
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.QueryWorkers == 0 {
		o.QueryWorkers = DefaultQueryWorkers
	}
	var errs []error
	for _, f := range []struct {
		name  string
		value int64
		least int64
	}{
		{"max_in_flight", int64(o.MaxInFlight), 1},
		{"max_pending", int64(o.MaxPending), 1},
		{"max_memory", o.MaxMemory, 1},
		{"rate_limit", int64(o.RateLimit), 0},
		{"gentle rate", int64(o.GentleRate), 0},
		{"query workers", int64(o.QueryWorkers), 1},
		{"second_delete", int64(o.ShortestD), 0},
	} {
		if f.value < f.least {
			errs = append(errs, fmt.Errorf("invalidator: %s %d: want at least %d", f.name, f.value, f.least))
		}
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("redis: timeout %s: want more than 0s", o.Timeout))
	}
	if err := o.Retry.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("retry: %w", err))
	}
	o.Retry = o.Retry.WithDefaults()
	return o, errors.Join(errs...)
}
