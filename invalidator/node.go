package invalidator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// node writes to one Redis node: some writers, each with one round trip under way. Each [lane] hands out as many slots
// as it takes jobs; the goroutine with a slot fills a job as late as possible, with all that is ready by then, and
// passes it to jobs without waiting.
//
// With Redis Cluster there is one node for each master, and a job holds keys of one of them.
type node struct {
	redis   Redis
	clock   func() instant
	health  *health
	timeout time.Duration
	prefix  string
	metrics *metrics
	// known says since when everybody is known to see what an entry holds, unseen when it was last known not to be
	// there.
	known, unseen func(*entry) instant
	live, gentle  *lane
	// topology says which node has which slot.
	topology func() *topology

	left    chan struct{}      // closed when it gives no slots any more
	stop    context.CancelFunc // ends what works for it
	workers sync.WaitGroup
}

// spareJobs is how many jobs may wait besides those that the writers have: enough for a writer not to wait for the
// partition to hear that it is free.
const spareJobs = 2

// newNode makes a node. gentle paces the gentle lanes of all nodes.
func newNode(h *health, o Options, m *metrics, gentle *pacer) *node {
	return &node{
		redis: h.redis, clock: h.clock, health: h, timeout: o.Timeout, prefix: o.KeyPrefix, metrics: m,
		live: liveLane().open(spareJobs), gentle: gentleLane(gentle).open(0), left: make(chan struct{}),
	}
}

// lane returns the way to the node for live or for gentle work.
func (n *node) lane(gentle bool) *lane {
	if gentle {
		return n.gentle
	}
	return n.live
}

// start starts the writers and the prober.
func (n *node) start(ctx context.Context) {
	ctx, n.stop = context.WithCancel(ctx)
	for _, l := range []*lane{n.live, n.gentle} {
		for range l.writers {
			n.workers.Go(func() { n.write(ctx, l) })
		}
	}
	n.workers.Go(func() { n.health.probe(ctx) })
}

// end waits until nothing is under way, and ends the node. Nobody gets a slot of it any more.
func (n *node) end() {
	close(n.left)
	for _, l := range []*lane{n.live, n.gentle} {
		for range cap(l.slots) {
			<-l.slots
		}
	}
	n.stop()
	n.workers.Wait()
}

// write is one writer of a lane. It returns when ctx ends; it then has no job.
func (n *node) write(ctx context.Context, l *lane) {
	w := newWriter(ctx, n.prefix)
	w.node = n
	for {
		select {
		case j := <-l.jobs:
			w.run(j)
			l.trips.ended(j, n.health.spans.least(), n.clock())
			l.free()
			j.done <- j
		case <-ctx.Done():
			return
		}
	}
}

// newWriter returns a writer to no node yet.
func newWriter(ctx context.Context, prefix string) *writer {
	return &writer{ctx: ctx, text: keyText{prefix: prefix}, builder: newBuilder(prefix)}
}

func newBuilder(prefix string) *write.Builder {
	b, err := write.New(write.Options{Names: write.Names{Prefix: prefix}})
	if err != nil {
		panic(err) // constants
	}
	return b
}

// writer is the state of one writing goroutine.
type writer struct {
	node    *node
	ctx     context.Context
	text    keyText
	full    []*Command // of commandKeys keys each
	singles []*Command // of one key each
	todo    []*Command

	denied  bool // counted in [health].denied
	builder *write.Builder
	actions []action
	calls   []*write.Call // of the round trip under way
	ends    []int         // by action in it: where its calls end
	// asked is the entry of the last action in it, and visible since when everybody is known to see what it holds.
	// unseen is when it was last known not to be there yet.
	asked           *entry
	visible, unseen instant
	// redisNow is the time of Redis' clock, in ms, when it began to be made; 0 if no value is sent in it.
	redisNow int64
}

// run sends a job until every key of it was dealt with or is known to be in trouble by itself.
func (w *writer) run(j *job) {
	defer w.deny(false)
	w.text.reset()
	j.reply = reply{sent: never, replied: always}
	if j.class == writes {
		w.runWrites(j)
		return
	}
	if j.single {
		w.runSingle(j)
		return
	}
	used, bytes := 0, 0
	j.each(func(_ int, key string, _ bool) {
		if bytes += len(key); used == 0 || w.full[used-1].full() || bytes > commandBytes {
			w.full = atLeast(w.full, used, commandKeys)
			used++
			bytes = len(key)
		}
		w.full[used-1].add(w.text.key(key))
	})
	if !w.send(j, w.full[:used]) {
		return
	}
	at := 0
	for _, c := range w.full[:used] {
		if c.Err != nil && !w.split(j, c, at) {
			return
		}
		at += c.Len()
	}
}

// atLeast makes sure that there is an i-th command, and that it is empty.
func atLeast(commands []*Command, i, keys int) []*Command {
	if i == len(commands) {
		commands = append(commands, newCommand(keys))
	}
	commands[i].reset()
	return commands
}

func (w *writer) runSingle(j *job) {
	used, at := 0, 0
	flush := func() bool {
		ok := w.send(j, w.singles[:used])
		if ok {
			j.fail(w.singles[:used], at)
		}
		at += used
		used = 0
		return ok
	}
	ok := true
	j.each(func(_ int, key string, asks bool) {
		if !ok {
			return
		}
		w.singles = atLeast(w.singles, used, 1)
		w.singles[used].add(w.text.key(key))
		w.singles[used].Asking = asks
		if used++; used == commandKeys {
			ok = flush()
		}
	})
	if ok && used > 0 {
		flush()
	}
}

// split finds out which keys of a refused command, the first of which is at the given place, are in trouble:
// Redis does nothing of a command when it may not touch one of its keys.
func (w *writer) split(j *job, c *Command, at int) bool {
	if c.Len() == 1 {
		j.fail([]*Command{c}, at)
		return true
	}
	for i := range c.Len() {
		w.singles = atLeast(w.singles, i, 1)
		w.singles[i].add(c.Key(i))
	}
	singles := w.singles[:c.Len()]
	ok := w.send(j, singles)
	if ok {
		j.fail(singles, at)
	}
	return ok
}

// send sends commands until each has an answer of its own, forever while Redis is away. It returns false when the
// job is over: its context ended, or no attempt will ever pass.
func (w *writer) send(j *job, commands []*Command) bool {
	w.todo = append(w.todo[:0], commands...)
	step := len(w.todo)
	for len(w.todo) > 0 {
		trip := w.todo[:min(step, len(w.todo))]
		sent := w.node.clock()
		w.trip(trip)
		a := reply{sent, w.node.clock()}
		answered, away := w.sort(j, trip, a)
		if j.err != nil {
			return false
		}
		w.todo = w.todo[answered:]
		if away == nil {
			continue
		}
		w.node.metrics.retries.Inc()
		w.failed(sent, away)
		if j.once || !w.node.health.await(j.ctx, j.routed) {
			j.givenUp = true
			return false
		}
		if !w.node.health.isRouted(j.routed) {
			for _, c := range w.todo {
				c.Err = errRerouted
			}
			return true
		}
		// A Redis that is merely slow, or at the end of a narrow line, gets less at a time, so that some attempt gets there.
		step = max(1, len(commands)/tripCommands)
		if isOverdue(away) {
			j.overdue, step = true, max(1, len(trip)/tripCommands)
		}
	}
	return true
}

// failed takes note of commands whose error says that Redis is away, or away for the writer's user.
func (w *writer) failed(sent instant, err error) {
	w.deny(retry.IsDenied(err))
	w.node.health.failed(sent, err)
}

// passed takes note of commands that were all answered.
func (w *writer) passed(r reply) {
	w.deny(false)
	w.node.health.answered(r)
}

// deny counts the writer among those whose command the user may not run, or no longer.
func (w *writer) deny(denied bool) {
	if denied == w.denied {
		return
	}
	w.denied = denied
	if denied {
		w.node.health.denied.Add(1)
	} else {
		w.node.health.denied.Add(-1)
	}
}

// trip makes one round trip.
func (w *writer) trip(commands []*Command) {
	ctx, cancel := context.WithTimeout(w.ctx, w.node.timeout)
	defer cancel()
	for _, c := range commands {
		c.Found, c.Err = 0, nil
	}
	begin := time.Now()
	w.node.redis.Unlink(ctx, commands)
	w.node.metrics.trip.Observe(time.Since(begin).Seconds())
}

// sort moves the answered commands of a trip to its front. It returns how many they are, and the error of one of
// the others.
func (w *writer) sort(j *job, trip []*Command, a reply) (answered int, away error) {
	for i, c := range trip {
		class := w.node.classify(c.Err)
		switch class {
		case retry.None:
			j.found += c.Found
		case retry.Key:
			if strays, _ := isStray(c.Err); !strays {
				w.node.metrics.refused.Inc()
			}
		case retry.Fatal:
			j.err = fmt.Errorf("redis %s: unlink %d keys: %w%s", w.node.redis, c.Len(), bare(c.Err), advice(c.Err))
			return answered, nil
		default: // a delete needs no memory, so a Redis without any is away
			away = c.Err
			continue
		}
		trip[answered], trip[i] = trip[i], trip[answered]
		answered++
	}
	if answered > 0 {
		j.answered(a)
		if away == nil {
			w.passed(a)
		} else {
			w.node.health.watch.answered(a)
		}
	}
	return answered, away
}

func advice(err error) string {
	if a := retry.RedisAdvice(err); a != "" {
		return "; " + a
	}
	return ""
}
