package invalidator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
)

// The world of the property test: rows in a database, servers on which their changes become visible at times of
// their own, readers that fill the cache from these servers, and a Redis that hangs, loses replies and refuses
// keys. All on the simulated clock of a synctest bubble, while the engine in it is the real one.
//
// What readers keep to is what is asked of users: a fill takes effect within D of the instant at which its value was
// read; or, if Redis was silent for more than D/4 meanwhile, within D of Redis answering again.

// change is one committed change of a row: the value of the row from then on is its ordinal.
type change struct {
	row     int
	event   time.Duration   // when the reader of the binlog has it
	visible []time.Duration // by server: when its readers see it
}

// stall is a time in which Redis does nothing. What reaches it meanwhile takes effect after it.
type stall struct {
	from, to time.Duration
	node     int
}

// window is a time in which Redis refuses something.
type window struct {
	from, to time.Duration
	row      int    // the key that it refuses; -1: all
	answer   string // what it answers
	node     int    // that refuses all
}

// fill is one reader's visit: it reads the row from a server and writes the value to the cache.
type fill struct {
	row, server   int
	read, written time.Duration
	// unlogged: what was read is what a row held before a statement that no event tells of.
	unlogged bool
}

// world is one scenario, and the state while it runs.
type world struct {
	scenario
	rng   *rand.Rand // of what happens while it runs; guarded by mu
	begin time.Time
	lasts context.Context // ends with the world

	dials atomic.Int64 // how many connections were lost, at most

	mu    sync.Mutex
	cache map[string]int // key to the ordinal of the change that made the value
	trace []string
	// guards are what is known of the versions of rebuilt keys, locks who holds them, and local what a process that
	// is told of changes has in its own memory.
	guards map[string]mark
	locks  map[string]string
	local  map[string]int
	writer map[string]bool // whether a key's last write was freshet's
	stamp  int             // up to which record everything is finished, as Redis says
	runs   int             // how often Redis went back
	asked  int             // for how many rows one query asked at most
	parked map[string]bool // the keys that ever were: they are deleted later, and nobody is told
	place  map[int]int     // by row: the node that has what there is of its key
	saidOf time.Duration   // what the cluster has said of itself was so then, or later
	// engines are those that hear the marks of the one reader that there is, where several processes do.
	engines map[*Engine]bool
}

func (w *world) now() time.Duration { return time.Since(w.begin) }

func (w *world) key(row int) string { return fmt.Sprintf("row:%d", row) }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%12s ", w.now())+fmt.Sprintf(format, args...))
}

// valueAt returns what a reader of the server sees at t: the ordinal of a change, -1 before the first.
func (w *world) valueAt(row, server int, t time.Duration) int {
	value := -1
	for i, c := range w.changes {
		if c.row == row && c.visible[server] <= t {
			value = i
		}
	}
	return value
}

// after does f after so long, unless the world has ended by then. time.AfterFunc would do the same, but the goroutines
// that it makes in a bubble can crash the race detector (https://go.dev/issue/78156).
func (w *world) after(d time.Duration, f func()) {
	go func() {
		if w.until(w.lasts, w.now()+d) == nil {
			f()
		}
	}()
}

// startReaders has all fills happen at their times.
func (w *world) startReaders() {
	for _, f := range w.fills {
		value := w.valueAt(f.row, f.server, f.read)
		if f.unlogged {
			value = unlogged
		}
		w.after(f.written, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.put(w.fillsAt(f.row), f.row)
			w.cache[w.key(f.row)], w.writer[w.key(f.row)] = value, false
			w.note("SET row %d to change %d, read at %s from server %d", f.row, value, f.read, f.server)
		})
	}
}

// stale returns the keys whose cached value is older than their row.
func (w *world) stale() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []string
	for row := range w.rows {
		last := -1
		for i, c := range w.changes {
			if c.row == row {
				last = i
			}
		}
		if value, cached := w.cache[w.key(row)]; cached && value != last {
			keys = append(keys, fmt.Sprintf("%s holds change %d of %d", w.key(row), value, last))
		}
		if value, cached := w.local[w.key(row)]; cached && value != last && !w.parked[w.key(row)] {
			keys = append(keys, fmt.Sprintf("the local cache holds change %d of %d of row %d", value, last, row))
		}
	}
	return keys
}

// release returns when a node of Redis does what reaches it at t.
func (w *world) release(node int, t time.Duration) time.Duration {
	for _, s := range w.stalls {
		if s.node == node && s.from <= t && t < s.to {
			return s.to + time.Duration(w.rng.Int64N(int64(2*time.Millisecond)))
		}
	}
	return t
}

// simRedis is the world's Redis, as one process of freshet sees it.
type simRedis struct {
	w    *world
	node int
}

var errLost = errors.New("connection lost")

// String implements [Redis].
func (r simRedis) String() string { return fmt.Sprintf("simulated:%d", r.node) }

// lost is how a connection is lost. The caller holds mu.
func (w *world) lost() error {
	w.dials.Add(1)
	if w.chance(w.unused) {
		return errUnused
	}
	return errLost
}

// Time implements [Redis]: what it says is as old as the way of its reply, be it for a stall of the network.
func (r simRedis) Time(ctx context.Context) (time.Time, error) {
	w := r.w
	w.mu.Lock()
	there := w.release(r.node, w.now()+w.delay())
	back := w.release(r.node, there+w.delay())
	lost, loss := w.chance(w.lose), w.lost()
	w.mu.Unlock()
	if err := w.until(ctx, there); err != nil {
		return time.Time{}, err
	}
	w.mu.Lock()
	said := time.UnixMilli(w.redisTime(r.node))
	w.mu.Unlock()
	if err := w.until(ctx, back); err != nil {
		return time.Time{}, err
	}
	if lost {
		return time.Time{}, loss
	}
	return said, nil
}

// Dials implements [Redis]: each connection that was lost is created again.
func (r simRedis) Dials() int64 { return r.w.dials.Load() }

// redisTime is the time of a node's clock, in ms.
func (w *world) redisTime(node int) int64 {
	now := 1_000_000 + w.now().Milliseconds()
	if w.nodes > 1 {
		now += w.clocks[node].Milliseconds()
	}
	return now
}

// Ping implements [Redis].
func (r simRedis) Ping(ctx context.Context) error {
	w := r.w
	w.mu.Lock()
	there := w.release(r.node, w.now()+w.delay())
	back := w.delay()
	lost, loss := w.chance(w.lose/4), w.lost()
	w.mu.Unlock()
	if err := w.until(ctx, there+back); err != nil {
		return err
	}
	if lost {
		return loss
	}
	return nil
}

// Unlink implements [Redis].
func (r simRedis) Unlink(ctx context.Context, commands []*Command) {
	w := r.w
	w.mu.Lock()
	at := w.release(r.node, w.now()+w.delay())
	back := w.delay()
	lostBefore, lostAfter, loss := w.chance(w.lose), w.chance(w.lose), w.lost()
	w.mu.Unlock()
	if lostBefore {
		fail(commands, loss)
		return
	}
	// The commands are in Redis' socket: they take effect whether or not anybody waits for it.
	keys, asking := make([][]string, len(commands)), make([]bool, len(commands))
	for i, c := range commands {
		asking[i] = c.Asking
		for j := range c.Len() {
			keys[i] = append(keys[i], c.Key(j))
		}
	}
	done := make(chan []outcome, 1)
	w.after(at-w.now(), func() { done <- w.unlink(r.node, keys, asking) })
	if err := w.until(ctx, at+back); err != nil {
		fail(commands, errors.Join(errLost, err))
		return
	} else if lostAfter {
		fail(commands, loss)
		return
	}
	for i, o := range <-done {
		commands[i].Found, commands[i].Err = o.found, o.err
	}
}

func fail(commands []*Command, err error) {
	for _, c := range commands {
		c.Err = err
	}
}

type outcome struct {
	found int64
	err   error
}

// unlink is what Redis does with the commands: each either wholly or, if it may not touch one of the keys, not.
func (w *world) unlink(node int, commands [][]string, asking []bool) []outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	outcomes := make([]outcome, len(commands))
	for i, keys := range commands {
		answer := w.redirect(node, keys[0], asking[i], false)
		if answer == "" {
			answer = w.refusal(node, keys)
		}
		if answer != "" {
			outcomes[i].err = answerError(answer)
			w.note("REFUSED %v by node %d: %s", keys, node, answer)
			continue
		}
		for _, k := range keys {
			if _, cached := w.cache[k]; cached {
				outcomes[i].found++
				delete(w.cache, k)
			}
		}
		w.note("UNLINK %v", keys)
	}
	return outcomes
}

func (w *world) refusal(node int, keys []string) string {
	now := w.now()
	for _, r := range w.refusals {
		if r.from <= now && now < r.to && (r.row < 0 && r.node == node || r.row >= 0 && slices.Contains(keys, w.key(r.row))) {
			return r.answer
		}
	}
	return ""
}

// answerError is an error that Redis answers with.
type answerError string

func (e answerError) Error() string { return string(e) }

// RedisError makes it a [redis.Error].
func (answerError) RedisError() {}

var _ redis.Error = answerError("")

// until waits for the instant t; it fails when ctx ends first.
func (w *world) until(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t - w.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// delay is a way through the network. The caller holds mu.
func (w *world) delay() time.Duration {
	return 100*time.Microsecond + time.Duration(w.rng.Int64N(int64(time.Millisecond)))
}

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// version is the place of a change in the binlog.
func version(change int) event.Version {
	return event.Version{Epoch: 1, File: 1, Pos: uint64(4 + change), Row: 1}
}

// confirmed returns the last change up to which all are visible on the given servers at t; -1 if not even the first.
func (w *world) confirmed(servers int, t time.Duration) int {
	for i, c := range w.changes {
		for s := range servers {
			if c.visible[s] > t {
				return i - 1
			}
		}
	}
	return len(w.changes) - 1
}
