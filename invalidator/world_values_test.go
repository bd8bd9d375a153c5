package invalidator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
)

// What the world's Redis does with calls: the scripts of package write as far as rebuilding a whole key, its locks and
// its notices go, in Go. Package write tests the scripts themselves, on a real Redis.

// sentCall is a call as it lies in Redis' socket.
type sentCall struct {
	script string // "" for other commands
	args   []string
	asking bool
}

func sentCalls(calls []*write.Call) []sentCall {
	sent := make([]sentCall, len(calls))
	for i, c := range calls {
		sent[i].asking = c.Asking
		for _, a := range c.Args {
			sent[i].args = append(sent[i].args, strings.Clone(*a.(*string)))
		}
		if c.Script != nil {
			sent[i].script = c.Script.Name
		}
	}
	return sent
}

type callOutcome struct {
	reply any
	err   error
}

// Do implements [Redis].
func (r simRedis) Do(ctx context.Context, calls []*write.Call) {
	w := r.w
	w.mu.Lock()
	at := w.release(r.node, w.now()+w.delay())
	back := w.delay()
	lostBefore, lostAfter, loss := w.chance(w.lose), w.chance(w.lose), w.lost()
	w.mu.Unlock()
	failAll := func(err error) {
		for _, c := range calls {
			c.Err = err
		}
	}
	if lostBefore {
		failAll(loss)
		return
	}
	sent := sentCalls(calls)
	done := make(chan []callOutcome, 1)
	w.after(at-w.now(), func() { done <- w.run(r.node, sent) })
	if err := w.until(ctx, at+back); err != nil {
		failAll(errors.Join(errLost, err))
		return
	} else if lostAfter {
		failAll(loss)
		return
	}
	for i, o := range <-done {
		calls[i].Reply, calls[i].Err = o.reply, o.err
	}
}

// run is what Redis does with the calls of a round trip.
func (w *world) run(node int, calls []sentCall) []callOutcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	outcomes := make([]callOutcome, len(calls))
	for i, c := range calls {
		answer := w.refusal(node, c.keys())
		for _, k := range c.keys() {
			if answer == "" && c.args[0] != "publish" {
				answer = w.redirect(node, k, c.asking, c.script == "rebuild" || len(c.args) > 2 && c.args[0] == "unlink")
			}
		}
		if answer != "" {
			outcomes[i].err = answerError(answer)
			w.note("REFUSED %s %v: %s", c.script, c.args, answer)
			continue
		}
		outcomes[i].reply = w.call(node, c)
		w.note("%s %v: %v", c.script, c.args, outcomes[i].reply)
	}
	return outcomes
}

// keys are the words that may be keys.
func (c sentCall) keys() []string { return c.args[1:] }

func (w *world) call(node int, c sentCall) any {
	switch {
	case c.script == "rebuild":
		w.put(node, rowOf(c.args[3]))
		return w.rebuild(node, c.args[3], c.args[5:])
	case c.script == "acquire":
		if owner, locked := w.locks[c.args[3]]; locked && owner != c.args[4] {
			return int64(0)
		}
		w.locks[c.args[3]] = c.args[4]
		return int64(1)
	case c.script == "renew":
		return int64(1)
	case c.script == "release":
		if w.locks[c.args[3]] == c.args[4] {
			delete(w.locks, c.args[3])
		}
		return int64(1)
	case c.args[0] == "unlink":
		found := int64(0)
		for _, k := range c.args[1:] {
			if _, cached := w.cache[k]; cached {
				found++
				delete(w.cache, k)
			}
			if row, ok := strings.CutPrefix(k, "freshet:v:{"); ok {
				delete(w.guards, strings.TrimSuffix(row, "}"))
			}
		}
		return found
	case c.args[0] == "set": // a companion
		value := strings.Fields(c.args[2])
		v, ok := readVersion(value[0])
		since, err := strconv.ParseInt(value[1], 10, 64)
		if row, is := strings.CutPrefix(c.args[1], "freshet:v:{"); is && ok && err == nil {
			w.guards[strings.TrimSuffix(row, "}")] = mark{v, since, w.now()}
			return "OK"
		}
		panic(fmt.Sprintf("no companion: %q", c.args))
	case c.args[0] == "publish":
		w.told(c.args[2])
		return int64(1)
	}
	panic(fmt.Sprintf("the world's Redis does not know %q", c.args))
}

// mark is what a guard knows of a key.
type mark struct {
	version event.Version
	since   int64         // by Redis' clock, in ms; 0: it confirms
	left    time.Duration // when it was left
}

// The replies of the script.
const (
	isOlder = iota
	isWritten
	isRemoved
	isForgotten
)

// rebuild is rebuild.lua: args are what to do, source, window, single or begun, keep, last, ttl, version, value.
func (w *world) rebuild(node int, key string, args []string) any {
	v, ok := readVersion(args[7])
	if !ok {
		panic("no version: " + args[7])
	}
	number := func(at int) int64 {
		n, err := strconv.ParseInt(args[at], 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	single, now := args[3] == "1", w.redisTime(node)
	old, marked := w.guards[key]
	_, cached := w.cache[key]
	isOld := marked && old.version.Compare(v) > 0
	if args[0] == "forget" || (args[0] == "yield" || now > number(5)) && !isOld {
		delete(w.cache, key)
		switch {
		case isOld || !marked:
		case args[0] == "yield":
			w.guards[key] = mark{old.version, now, w.now()}
		default:
			w.guards[key] = mark{v, old.since, w.now()}
		}
		return int64(isForgotten)
	}
	left := mark{v, 0, w.now()}
	switch {
	case !marked && single && !cached:
	case !marked:
		left.since = now
	case isOld:
		return int64(isOlder)
	case old.since <= number(3) || now-old.since >= number(2):
	default:
		left.since = old.since
	}
	w.guards[key] = left
	switch {
	case left.since != 0:
		delete(w.cache, key)
		return left.since
	case args[0] == "drop":
		delete(w.cache, key)
		return int64(isRemoved)
	}
	value, err := strconv.Atoi(args[8])
	if err != nil {
		panic(err)
	}
	w.cache[key], w.writer[key] = value, true
	return int64(isWritten)
}

// rebuilt returns the keys whose last write was freshet's.
func (w *world) rebuilt() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []string
	for k, by := range w.writer {
		if by {
			keys = append(keys, k)
		}
	}
	return keys
}

// told is a local cache that hears of a row: it takes what Redis holds then, and if that is nothing, the row.
func (w *world) told(message string) {
	row, err := strconv.Atoi(message)
	if err != nil {
		panic(err)
	}
	value, cached := w.cache[w.key(row)]
	if !cached {
		value = w.valueAt(row, 0, w.now())
	}
	w.local[w.key(row)] = value
	w.note("the local cache has change %d of row %d", value, row)
}

// startEvictions has Redis forget keys and guards that nothing has been written to for long.
func (w *world) startEvictions() {
	for _, at := range w.evicts {
		w.after(at, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			for k, m := range w.guards {
				if w.now()-m.left >= untouched {
					delete(w.guards, k)
					delete(w.cache, k)
					w.note("EVICTED %s", k)
				}
			}
		})
	}
}

// simRebuilder queries the first of the world's servers, which is the source.
type simRebuilder struct{ w *world }

// Query implements [Rebuilder]. All that is asked together is read at one time.
func (r simRebuilder) Query(ctx context.Context, _, _ string, params []event.Fields, _ *event.GTIDSet,
	answer func(int, event.Fields, bool, error) bool,
) {
	w := r.w
	w.mu.Lock()
	there, back := w.delay(), w.delay()
	slow := 0.3
	if w.bundles {
		there, back, slow = there/4, back/4, 0.03
		w.asked = max(w.asked, len(params))
	}
	if w.chance(slow) {
		back += time.Duration(w.rng.Int64N(int64(w.d)))
	}
	fails := w.chance(w.lose)
	w.mu.Unlock()
	values, err := make([]int, len(params)), w.until(ctx, w.now()+there)
	for i := range params {
		text, _, _ := params[i].Next()
		row, _ := strconv.Atoi(string(text))
		values[i] = w.valueAt(row, 0, w.now())
	}
	if err == nil {
		err = w.until(ctx, w.now()+back)
	}
	if fails && err == nil {
		err = errLost
	}
	more := true
	for i := 0; i < len(values) && more; i++ {
		if err != nil {
			more = answer(i, nil, false, err)
		} else {
			more = answer(i, event.AppendField(nil, strconv.Itoa(values[i])), values[i] < 0, nil)
		}
	}
}
