package write

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/freshet/freshet/event"
)

// value is what a change writes.
func value(n int) string { return "v" + strconv.Itoa(n) }

// gone reports whether a subject whose last change is n has no row. Before its first change it has none.
func (w *world) gone(n int) bool { return n == 0 || w.changes[n-1].gone }

func (w *world) intent(n int) event.Intent {
	if w.gone(n) {
		return event.IntentRemove
	}
	return event.IntentPut
}

// whole is a value for the whole key: a string, with a negative entry or without.
type whole struct{ missing bool }

func (whole) subjects() int { return 1 }

func (k whole) item(w *world, n int) *Item {
	e := &event.Effect{As: event.FormString, Missing: k.missing, MissingValue: "none"}
	return &Item{Action: event.ActionRebuild, Intent: w.intent(n), Effect: e, Fields: fields(value(n))}
}

func (whole) misses(w *world, _ int) bool { return w.redis("exists", worldKey) == int64(0) }

func (whole) fill(w *world, _ int, state []int) {
	if !w.gone(state[0]) {
		w.redis("set", worldKey, value(state[0]))
	}
}

func (whole) wrong(w *world, state []int) string {
	have, want := w.redis("get", worldKey), value(state[0])
	if w.gone(state[0]) {
		want = "none"
	}
	if have == nil || have == want {
		return ""
	}
	return fmt.Sprintf("%v, want %s", have, want)
}

// columns is a hash for the whole key, written at once or, where pieces may be lost, so large that it is written in
// pieces.
type columns struct{}

// padding is a value that makes a hash too large for one piece.
var padding = strings.Repeat("x", inlineBytes)

func (columns) subjects() int { return 1 }

func (columns) item(w *world, n int) *Item {
	f := fields("a", value(n), "b", value(n), "c", value(n))
	if w.h.torn > 0 {
		f = append(f, fields("padding", padding)...)
	}
	return &Item{Action: event.ActionRebuild, Intent: w.intent(n), Effect: &event.Effect{As: event.FormHash}, Fields: f}
}

func (columns) misses(w *world, _ int) bool { return w.redis("exists", worldKey) == int64(0) }

func (columns) fill(w *world, _ int, state []int) {
	if n := state[0]; !w.gone(n) {
		w.redis("hset", worldKey, "a", value(n), "b", value(n), "c", value(n))
	}
}

func (columns) wrong(w *world, state []int) string {
	have := w.client.HGetAll(w.ctx, worldKey).Val()
	if len(have) == 0 {
		return ""
	}
	delete(have, "padding")
	want := value(state[0])
	if w.gone(state[0]) || len(have) != 3 || have["a"] != want || have["b"] != want || have["c"] != want {
		return fmt.Sprintf("%v, want all %s (gone: %v)", have, want, w.gone(state[0]))
	}
	return ""
}

// fieldwise is a hash whose fields are rows of their own.
type fieldwise struct{}

func (fieldwise) subjects() int { return 3 }

func fieldName(subject int) string { return "f" + strconv.Itoa(subject) }

func (fieldwise) item(w *world, n int) *Item {
	return &Item{
		Action: event.ActionHash, Intent: w.intent(n), Effect: &event.Effect{},
		Fields: fields(fieldName(w.changes[n-1].subject), value(n)),
	}
}

func (fieldwise) misses(w *world, subject int) bool {
	return w.redis("hexists", worldKey, fieldName(subject)) == int64(0)
}

func (fieldwise) fill(w *world, subject int, state []int) {
	if n := state[subject]; !w.gone(n) {
		w.redis("hset", worldKey, fieldName(subject), value(n))
	}
}

func (fieldwise) wrong(w *world, state []int) string {
	have := w.client.HGetAll(w.ctx, worldKey).Val()
	for s, n := range state {
		v, ok := have[fieldName(s)]
		if ok && (w.gone(n) || v != value(n)) {
			return fmt.Sprintf("%v, want %v", have, state)
		}
	}
	return ""
}

// members is a set, or a sorted set whose scores are the numbers of the changes. A subject is a member.
type members struct{ sorted bool }

func (members) subjects() int { return 4 }

func memberName(subject int) string { return "m" + strconv.Itoa(subject) }

func (k members) item(w *world, n int) *Item {
	action := event.ActionSet
	if k.sorted {
		action = event.ActionZSet
	}
	return &Item{
		Action: action, Intent: w.intent(n), Effect: &event.Effect{},
		Fields: fields(memberName(w.changes[n-1].subject), strconv.Itoa(n)),
	}
}

func (members) misses(w *world, _ int) bool { return w.redis("exists", worldKey) == int64(0) }

// rows are the members of a state, with their scores.
func (k members) rows(w *world, state []int) []string {
	var rows []string
	for s, n := range state {
		switch {
		case w.gone(n):
		case k.sorted:
			rows = append(rows, strconv.Itoa(n)+" "+memberName(s))
		default:
			rows = append(rows, memberName(s))
		}
	}
	sort.Strings(rows)
	return rows
}

func (k members) fill(w *world, _ int, state []int) {
	pipe := w.client.TxPipeline()
	pipe.Del(w.ctx, worldKey)
	for _, r := range k.rows(w, state) {
		if score, member, ok := strings.Cut(r, " "); ok {
			pipe.Do(w.ctx, "zadd", worldKey, score, member)
		} else {
			pipe.SAdd(w.ctx, worldKey, r)
		}
	}
	if _, err := pipe.Exec(w.ctx); err != nil {
		w.fail("fill: %v", err)
	}
}

func (k members) wrong(w *world, state []int) string {
	var have []string
	if k.sorted {
		for _, z := range w.client.ZRangeWithScores(w.ctx, worldKey, 0, -1).Val() {
			have = append(have, fmt.Sprintf("%v %v", z.Score, z.Member))
		}
	} else {
		have = w.client.SMembers(w.ctx, worldKey).Val()
	}
	sort.Strings(have)
	if want := k.rows(w, state); len(have) > 0 && !slices.Equal(have, want) {
		return fmt.Sprintf("%v, want %v", have, want)
	}
	return ""
}
