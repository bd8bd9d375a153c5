package invalidator

import (
	"context"
	"time"

	"github.com/freshet/freshet/retry"
)

// job is what is sent in one round trip, and then what became of it. Its maker hands it over and gets it
// back on done.
type job struct {
	// ctx ends when the result is of no use any more. It does not interrupt a round trip.
	ctx  context.Context
	done chan<- *job
	lane *lane
	// routed is since when the topology by which it goes to its node was the one.
	routed instant
	kind   kind
	class  class
	// single sends each key in a command of its own.
	single bool
	// parts are the keys, or keys is, or, to be forgotten, entries.
	parts   []part
	keys    []string
	entries []retry.Entry
	size    int
	bytes   int   // of the keys and values
	halved  int32 // how often what fits into it was halved: see [trips]
	// once gives up when Redis goes away, for what is sent would be old by the time that it is back.
	once bool
	// telling says that everything is done and only told about: what comes back is no reply to a delete or write.
	telling bool

	// reply is when the first of the answered commands was sent and when the last answer came; slowest is how long the
	// slowest round trip with an answer took.
	reply   reply
	slowest time.Duration
	found   int64
	// overdue says that a round trip of it had no answer in time.
	overdue bool
	// failed are the keys that Redis refuses, in order.
	failed []failure
	// err is set when nothing can be done: a fault that no attempt will repair.
	err error
	// givenUp says that ctx ended first: some or all keys have no answer.
	givenUp bool
}

// part is a run of keys of a unit.
type part struct {
	unit     *unit
	from, to int
	// first is the unit's when the job was made, and this part's once it has been answered.
	first firstAction
	// final is the unit's.
	final bool
}

// failure is one key that Redis refuses: its place among the keys of the job, and the error.
type failure struct {
	at    int
	error string
	// permanent says that trying again will not help.
	permanent bool
	// strays says that the key is in no trouble: the node does not serve it. asks says that it said ASK.
	strays, asks bool
}

func (j *job) reset() {
	clear(j.parts)
	clear(j.keys)
	*j = job{parts: j.parts[:0], keys: j.keys[:0], failed: j.failed[:0]}
}

// answered takes note of a round trip with answers.
func (j *job) answered(a reply) {
	j.reply.sent = min(j.reply.sent, a.sent)
	j.reply.replied = max(j.reply.replied, a.replied)
	j.slowest = max(j.slowest, a.replied.sub(a.sent))
}

// each calls f with every key and its place.
func (j *job) each(f func(at int, key string, asks bool)) {
	at := 0
	for _, p := range j.parts {
		for i := p.from; i < p.to; i++ {
			f(at, p.unit.key(i), p.unit.asks)
			at++
		}
	}
	for _, k := range j.keys {
		f(at, k, false)
		at++
	}
}

// fail notes which of the single-key commands were refused.
func (j *job) fail(singles []*Command, at int) {
	for i, c := range singles {
		if c.Err != nil {
			f := failure{at: at + i, error: c.Err.Error()}
			f.strays, f.asks = isStray(c.Err)
			j.failed = append(j.failed, f)
		}
	}
}
