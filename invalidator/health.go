package invalidator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// How Redis is asked whether it is there. While it is away the waits are short, so that deletes flow again within
// a second of its return.
const (
	minProbeWait = 20 * time.Millisecond
	maxProbeWait = 400 * time.Millisecond
	shortProbe   = 500 * time.Millisecond
	idlePulse    = time.Second
	restPulse    = 100 * time.Millisecond
	busyPulse    = time.Millisecond
	pulsesPerD   = 8
	restPerD     = 5 // a silence lasts longer than a quarter of D: see late
	// backEach is how long at least is between two lines that say that Redis is back.
	backEach = time.Minute
)

// health knows whether Redis is there. Writers that failed wait in it; its prober, one goroutine, asks Redis for as
// long as it is away and lets them try again.
//
// Redis counts as back when a command of a waiting writer has passed, or, when none waits, a PING: a replica or a
// full disk answers a PING as if nothing were the matter.
type health struct {
	redis   Redis
	clock   func() instant
	watch   *watch
	time    *redisTime
	timeout time.Duration
	alarms  Alarms
	log     *slog.Logger
	metrics *metrics
	// busy reports whether a silence of Redis would make a difference: see [Engine.counting].
	busy func() bool
	// back is called after Redis came back.
	back func()
	// spans are the D that were seen.
	spans *spans
	// apart says that Redis is one of several nodes: the others go on without it.
	apart bool
	kick  chan struct{}
	// overslept is when it was last noticed that nothing had run here for long, or that Redis' clock had stepped; 0:
	// never.
	overslept atomic.Int64
	// slow: the prober asks as seldom as at rest, unless it is kicked.
	slow atomic.Bool

	isUp atomic.Bool
	mu   sync.Mutex
	// since is when the present state began.
	since     instant
	sinceWall time.Time
	reason    error
	// said is when the log last said that Redis is back, and repeats how often it came back since without a line.
	said    instant
	repeats int
	refused int
	again   chan struct{} // closed, and created again, when the refused may try again
	// routed is since when the topology is as it is: what was sent by another must be split again.
	routed instant

	// denied counts the writers whose command the user may not run. Until it is theirs that passes, no other command or
	// PING says that Redis is back: rights come and go by command, and it would be away again at once.
	denied atomic.Int64
}

func newHealth(r Redis, clock func() instant, timeout time.Duration, spans *spans) *health {
	h := &health{
		redis: r, clock: clock, watch: newWatch(), timeout: timeout, spans: spans, routed: always, said: always,
		kick: make(chan struct{}, 1), again: make(chan struct{}),
	}
	h.time = newRedisTime(r, clock, timeout, h.stepped)
	return h
}

// answered takes note of a command that Redis carried out, or refused for itself alone.
func (h *health) answered(a reply) {
	h.watch.answered(a)
	if !h.isUp.Load() && h.denied.Load() == 0 {
		h.setUp()
	}
}

func (h *health) setUp() {
	h.mu.Lock()
	if h.isUp.Load() {
		h.mu.Unlock()
		return
	}
	now := h.clock()
	reason, away := h.reason, now.sub(h.since)
	repeats, quiet := h.repeats, now < h.said.add(backEach)
	switch {
	case reason == nil:
	case quiet:
		h.repeats++
	default:
		h.said, h.repeats = now, 0
	}
	h.reason, h.since, h.sinceWall = nil, now, time.Now()
	h.isUp.Store(true)
	h.release()
	h.mu.Unlock()
	switch {
	case quiet: // the status says what it does
	case reason != nil:
		h.log.Info("redis is back", "address", h.redis.String(), "away_seconds", away.Seconds(), "repeats", repeats)
	default:
		h.log.Info("redis answers", "address", h.redis.String())
	}
	h.back()
}

// release lets the refused try again. The caller holds mu.
func (h *health) release() {
	close(h.again)
	h.again = make(chan struct{})
}

// failed takes note of a command, sent at the given moment, whose error says that Redis is away. A connection that was
// closed while nobody used it is neither that nor a silence: the caller tries again at once, on another one. That ends,
// for there are only so many connections, and a new one has not been unused.
func (h *health) failed(sent instant, err error) {
	if isNoNews(err) {
		return
	}
	h.watch.failed()
	h.mu.Lock()
	wasUp := h.isUp.Load()
	if wasUp && sent < h.since {
		// It was sent before Redis came back: news of the last absence, not of a new one.
		h.mu.Unlock()
		return
	}
	first := h.reason == nil
	h.reason = err
	if wasUp {
		h.since, h.sinceWall = h.clock(), time.Now()
		h.isUp.Store(false)
	}
	h.mu.Unlock()
	if !first {
		return
	}
	h.metrics.outages.Inc()
	h.alarms.Raise(alarm.RedisAway, h.awayMessage(err))
	wake(h.kick)
}

// awayMessage is the same for the same trouble: without the number of a local port.
func (h *health) awayMessage(err error) string {
	advice := retry.RedisAdvice(err)
	if advice == "" {
		advice = "nothing is lost, and deletes go on as soon as it is back"
	}
	waits := "deleting waits and reading has stopped"
	if h.apart {
		waits = "its keys wait, those of other nodes go on"
	}
	return fmt.Sprintf("redis %s is away (%s): %s; %s", h.redis, plain(err), waits, advice)
}

func plain(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// upSince returns since when Redis is there: not yet, if it is away.
func (h *health) upSince() instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isUp.Load() {
		return never
	}
	return h.since
}

// reroute says that the topology is another one since then. What waits for Redis may have to go elsewhere.
func (h *health) reroute(since instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.routed = since
	h.release()
}

// isRouted reports whether the topology is still the one of that instant.
func (h *health) isRouted(since instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.routed == since
}

// await blocks a writer whose commands failed, and were sent by the topology of that instant, until it is worth trying
// again; false when ctx ended first.
func (h *health) await(ctx context.Context, routed instant) bool {
	h.mu.Lock()
	if h.isUp.Load() || h.routed != routed {
		h.mu.Unlock()
		return ctx.Err() == nil
	}
	again := h.again
	h.refused++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.refused--
		h.mu.Unlock()
	}()
	select {
	case <-again:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// probe is the prober. It returns when ctx ends.
func (h *health) probe(ctx context.Context) {
	backoff := retry.Backoff{Min: minProbeWait, Max: maxProbeWait}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var wait time.Duration
	for asleep := time.Now(); ; asleep = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			h.woke(asleep, time.Now(), wait)
			if !h.isUp.Load() || h.watch.quietFor(h.clock()) >= h.pulse() {
				h.ping(ctx, backoff.Attempts())
			}
		case <-h.kick:
		}
		if h.isUp.Load() {
			backoff.Reset()
			wait = max(h.pulse()-h.watch.quietFor(h.clock()), busyPulse/2)
		} else {
			wait = backoff.Next()
		}
		timer.Reset(wait)
	}
}

// oversleep is how much longer than meant the prober sleeps if the process was stopped, or the machine suspended. It is
// less than any session, so a process that has lost a partition meanwhile has slept for longer.
const oversleep = 2 * time.Second

// woke takes note of a sleep that was longer than meant. A suspended machine's monotonic clock stands still, so it asks
// the other one, too.
func (h *health) woke(asleep, awake time.Time, meant time.Duration) {
	slept := max(awake.Sub(asleep), awake.Round(0).Sub(asleep.Round(0)))
	if slept <= meant+oversleep {
		return
	}
	h.overslept.Store(int64(h.clock()))
	h.log.Info("nothing ran here for a while: values are not written for now", "seconds", slept.Seconds())
}

// stepped takes note that Redis' clock and ours disagree about how much time has passed: Redis' was set, or is another
// server's, or nothing ran here, or there, and no clock of the machine tells.
func (h *health) stepped(by time.Duration) {
	h.overslept.Store(int64(h.clock()))
	h.log.Info("the clock of redis stepped, or nothing ran here for a while: values are not written for now", "seconds",
		by.Seconds())
}

// slept reports whether nothing had run here for long, or Redis' clock had stepped, when what was begun then had begun,
// or later, or so shortly before that a mark which does not confirm yet might seem older than it is. Somebody else may
// have finished newer changes meanwhile, and what is known here of times may be wrong.
func (h *health) slept(began instant, d time.Duration) bool {
	s := h.overslept.Load()
	return s != 0 && began < instant(s).add(write.ConfirmsAfter(d))
}

// pulse is how long Redis may go unasked: a fraction of the shortest D, so that a silence is distinguished from a time
// in which nobody asked. While no D is counted a short one is not worth the while. A time in which nobody asked counts
// as a silence, so asking less often takes nothing away: what comes first, and was visible for long, then takes two
// deletes.
//
// What begins to count after busy was asked, and before the prober sleeps, finds slow raised, and kicks it: slow is
// raised first.
func (h *health) pulse() time.Duration {
	d := h.spans.least()
	if d == 0 {
		return idlePulse
	}
	h.slow.Store(true)
	if !h.busy() {
		return min(max(d/restPerD, restPulse), idlePulse)
	}
	h.slow.Store(false)
	return min(max(d/pulsesPerD, busyPulse), idlePulse)
}

// hurry is called when a D begins to count: the prober then asks at the pace that this takes. One kick for each time
// that slow was raised is enough, and more would put off its attempts while Redis is away.
func (h *health) hurry() {
	if h.slow.Load() && h.slow.Swap(false) {
		wake(h.kick)
	}
}

// spans are the smallest and the largest D that were seen, in nanoseconds; 0: none.
type spans struct{ shortest, longest atomic.Int64 }

// saw takes note of a D that is in use.
func (s *spans) saw(d time.Duration) {
	for {
		old := s.longest.Load()
		if old >= int64(d) || s.longest.CompareAndSwap(old, int64(d)) {
			break
		}
	}
	for {
		old := s.shortest.Load()
		if d <= 0 || old != 0 && old <= int64(d) || s.shortest.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// least returns the smallest D; 0: none was seen.
func (s *spans) least() time.Duration { return time.Duration(s.shortest.Load()) }

// ping asks once. While Redis is away most attempts are short: one that hangs (a lost SYN) must not hide its
// return. Every fourth is not, for a Redis that is merely slow.
func (h *health) ping(ctx context.Context, attempt int) {
	timeout := h.timeout
	if !h.isUp.Load() && attempt%4 != 3 {
		timeout = min(timeout, shortProbe)
	}
	pingCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent := h.clock()
	err := h.redis.Ping(pingCtx)
	if ctx.Err() != nil {
		return
	}
	// An error that is one command's own (no right to PING) is an answer all the same.
	if class := retry.ClassifyRedis(err); class == retry.None || class == retry.Key {
		h.pong(reply{sent, h.clock()})
		return
	}
	h.failed(sent, err)
}

func (h *health) pong(a reply) {
	h.watch.answered(a)
	if h.isUp.Load() {
		return
	}
	h.mu.Lock()
	waiting := h.refused > 0
	if waiting {
		h.release()
	}
	h.mu.Unlock()
	if !waiting && h.denied.Load() == 0 {
		h.setUp()
	}
}

// wake sends to a channel with a buffer of one, on which somebody waits for news.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
