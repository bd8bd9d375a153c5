package invalidator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
)

// tapeRedis writes down what is deleted when, on the clock of a bubble. It answers at once unless set otherwise.
type tapeRedis struct {
	begin time.Time

	mu     sync.Mutex
	tape   []string
	pings  int
	delay  func(keys []string) time.Duration // how long the reply to a round trip takes
	answer func(keys []string) error         // what it answers to a command: nil deletes
	ping   func() error

	// slow: it does one thing at a time, whichever connection that came down, and takes so long for each key.
	slow time.Duration
	turn chan struct{}
	most int // the most keys in a round trip

	// ahead is by how much its clock is ahead.
	ahead time.Duration
	// silent: it answers nothing, like a server that was stopped. noTime: it does not say what time it is.
	silent, noTime bool
	asked          int           // what time it is
	timeTakes      time.Duration // for the answer to that
	timeErr        error
	dials          int64

	calls      []string // as tape, of the calls
	answerCall func(c sentCall) (any, error)
}

func (r *tapeRedis) String() string { return "tape:1" }

// work takes the time that some keys take. A lock would not do: a bubble's time stands still while one is waited for.
func (r *tapeRedis) work(keys int) {
	r.mu.Lock()
	slow, turn := r.slow, r.turn
	r.mu.Unlock()
	if slow == 0 {
		return
	}
	turn <- struct{}{}
	<-time.After(time.Duration(keys) * slow)
	<-turn
}

func (r *tapeRedis) Ping(ctx context.Context) error {
	if err := r.silence(ctx); err != nil {
		return err
	}
	r.work(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pings++
	if r.ping != nil {
		return r.ping()
	}
	return nil
}

func (r *tapeRedis) Time(ctx context.Context) (time.Time, error) {
	r.mu.Lock()
	r.asked++
	silent, takes, refused := r.noTime, r.timeTakes, r.timeErr
	r.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	if err := r.silence(ctx); err != nil {
		return time.Time{}, err
	}
	if silent {
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	}
	return time.Now().Add(r.ahead), refused
}

// silence waits until ctx ends while nothing is answered.
func (r *tapeRedis) silence(ctx context.Context) error {
	r.mu.Lock()
	silent := r.silent
	r.mu.Unlock()
	if !silent {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (r *tapeRedis) Dials() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials
}

func (r *tapeRedis) Unlink(ctx context.Context, commands []*Command) {
	var all []string
	for _, c := range commands {
		r.work(c.Len())
		all = append(all, commandKeysOf(c)...)
	}
	r.mu.Lock()
	r.most = max(r.most, len(all))
	var wait time.Duration
	if r.delay != nil {
		wait = r.delay(all)
	}
	for _, c := range commands {
		keys := commandKeysOf(c)
		if r.answer != nil {
			c.Err = r.answer(keys)
		}
		if c.Err == nil {
			c.Found = int64(len(keys))
			r.tape = append(r.tape, fmt.Sprintf("%s %s", time.Since(r.begin), strings.Join(keys, " ")))
		}
	}
	r.mu.Unlock()
	if wait == 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		fail(commands, ctx.Err())
	}
}

// Do implements [Redis]: every call is written down, and answered with what answerCall says, or 1.
func (r *tapeRedis) Do(ctx context.Context, calls []*write.Call) {
	if err := r.silence(ctx); err != nil {
		for _, c := range calls {
			c.Err = err
		}
		return
	}
	for range calls {
		r.work(1)
	}
	r.mu.Lock()
	r.most = max(r.most, len(calls))
	var wait time.Duration
	if r.delay != nil {
		var keys []string
		for _, c := range calls {
			keys = append(keys, c.Key())
		}
		wait = r.delay(keys)
	}
	for i, c := range sentCalls(calls) {
		words := append([]string{c.script}, c.args...)
		for i, w := range words {
			if v, ok := readVersion(w); ok {
				words[i] = v.String()
			}
		}
		text := strings.Join(words, " ")
		var reply any = int64(1)
		var err error
		if r.answerCall != nil {
			reply, err = r.answerCall(c)
		}
		calls[i].Reply, calls[i].Err = reply, err
		if err == nil {
			r.calls = append(r.calls, fmt.Sprintf("%s %s", time.Since(r.begin), strings.TrimSpace(text)))
		}
	}
	r.mu.Unlock()
	if wait == 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		for _, c := range calls {
			c.Err = ctx.Err()
		}
	}
}

func commandKeysOf(c *Command) []string {
	keys := make([]string, c.Len())
	for i := range keys {
		keys[i] = strings.Clone(c.Key(i))
	}
	return keys
}

// set changes how it answers.
func (r *tapeRedis) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// rig is an engine that serves one partition in a bubble.
type rig struct {
	*testing.T
	engine *Engine
	redis  *tapeRedis
	log    *fakeLog
	lines  lines // what the engine logs
	store  *memStore
	alarms *alarms
	stop   context.CancelFunc
	served chan error
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

// with returns the lines that have the words.
func (l *lines) with(words string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if strings.Contains(s, words) {
			out = append(out, s)
		}
	}
	return out
}

// inBubble runs a test of the engine on simulated time. Redis has been answering for a minute when it begins.
func inBubble(t *testing.T, o Options, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			T: t, redis: &tapeRedis{turn: make(chan struct{}, 1)}, log: newFakeLog(), store: &memStore{},
			alarms: &alarms{}, served: make(chan error, 1),
		}
		o.ShortestD = time.Second // no test has a shorter one
		if o.Retry.Rand == nil {
			o.Retry.Rand = func() float64 { return 0.999999999 }
		}
		r.engine = start(t, Deps{
			Redis: r.redis, Store: r.store, Alarms: r.alarms, Log: slog.New(slog.NewTextHandler(&r.lines, nil)),
		}, o)
		ctx, stop := context.WithCancel(t.Context())
		r.stop = stop
		go func() { r.served <- r.engine.Serve(ctx, r.log) }()
		r.pass(time.Minute)
		caughtUp(r.engine)
		r.redis.begin = time.Now()
		test(r)
		stop()
		synctest.Wait()
	})
}

// pass lets time pass, and what happens at its end.
func (r *rig) pass(d time.Duration) {
	r.Helper()
	<-time.After(d)
	synctest.Wait()
}

// unheard takes back that the reader was ever heard of.
func (r *rig) unheard() {
	m := r.engine.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.sources)
	clear(m.lastRead)
}

// append hands over a batch now.
func (r *rig) append(b *event.Batch) {
	if b.Age >= 0 {
		b.At = time.Now()
	}
	r.log.batches <- b
	synctest.Wait()
}

func (r *rig) mark(pos uint64) {
	r.engine.Mark(markAt(pos))
	synctest.Wait()
}

// tape checks what was deleted when.
func (r *rig) tape(want ...string) {
	r.Helper()
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	if diff := cmp.Diff(want, r.redis.tape); diff != "" {
		r.Fatalf("deleted: -want +got\n%s", diff)
	}
}

// count returns how often a key was deleted.
func (r *rig) count(key string) int {
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	n := 0
	for _, line := range r.redis.tape {
		if slices.Contains(strings.Fields(line)[1:], key) {
			n++
		}
	}
	return n
}

func (r *rig) watermark(want int) {
	r.Helper()
	if got := r.log.watermark(); got != want {
		r.Fatalf("%d batches are committed, want %d", got, want)
	}
}

// aged makes a batch with an age.
func aged(b *event.Batch, age time.Duration) *event.Batch {
	b.Age = age
	return b
}

// readVersion reads a version as the guard has it: each number after how many digits more than one it has.
func readVersion(text string) (v event.Version, ok bool) {
	var parts [4]uint64
	for i, digits := range [...]int{1, 1, 2, 1} {
		if len(text) < digits {
			return v, false
		}
		more, err := strconv.Atoi(text[:digits])
		if text = text[digits:]; err != nil || len(text) <= more {
			return v, false
		}
		if parts[i], err = strconv.ParseUint(text[:more+1], 10, 64); err != nil {
			return v, false
		}
		text = text[more+1:]
	}
	v = event.Version{Epoch: uint32(parts[0]), File: uint32(parts[1]), Pos: parts[2], Row: uint32(parts[3])}
	return v, text == ""
}
