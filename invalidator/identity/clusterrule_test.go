package identity

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/doubt/doubttest"
)

// told is a cluster of which a test says what each master has and answers.
type told struct {
	*clusterRig
	list  []Member
	watch *Cluster
	// moves are those that each master says it has begun by itself; unasked: it does not say.
	moves   []migration
	unasked error
	// worked is when each master last answered a command.
	worked time.Time
}

// answer is what a master answers: who it is, and the stamp that it holds.
type answer struct {
	id, slots string
	server    server
	stamp     string // a place; before it, with a colon, of which slots it speaks if these are not its own
	how       how
}

// how a master answers: silent does not, and early was asked before it was known who has which slots now.
type how int

const (
	heard how = iota
	silent
	early
)

func newTold(t *testing.T) *told {
	t.Helper()
	r := &clusterRig{T: t, facts: &doubttest.Memory{}, book: mustBook(t)}
	c := &told{clusterRig: r}
	w, err := NewCluster(Deps{Facts: r.facts, Doubts: r.book}, Options{Address: "the cluster", Source: "shop"},
		func() []Member { return c.list })
	if err != nil {
		t.Fatal(err)
	}
	c.watch = w
	w.begunBy = func(context.Context, redis.Cmdable) ([]migration, error) { return c.moves, c.unasked }
	c.begin()
	return c
}

func (c *told) begin() {
	c.Helper()
	c.watch.watched = map[string]*watched{}
	if err := c.watch.load(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// look is a look at all masters that there are.
func (c *told) look(answers ...answer) {
	c.Helper()
	c.list = nil
	for _, a := range answers {
		m := Member{ID: a.id, Address: a.id + ":6379"}
		if err := m.Slots.UnmarshalText([]byte(a.slots)); err != nil {
			c.Fatal(err)
		}
		if a.slots != "" { // else there are no connections
			m.Moved = func() { c.moved = append(c.moved, a.id) }
			m.Answered = func() time.Time { return c.worked }
		}
		c.list = append(c.list, m)
	}
	began, askedOf := time.Now(), map[string]held{}
	for addr, w := range c.watch.watched {
		_, askedOf[addr], _ = w.watch.asked()
	}
	c.watch.follow()
	for _, a := range answers {
		if a.how == silent {
			continue
		}
		asked, addr := time.Now(), a.id+":6379"
		w := c.watch.watched[addr].watch
		_, before, _ := w.asked()
		text := c.speaks(&a) + " " + a.stamp
		if of, place, came := strings.Cut(a.stamp, ": "); came {
			text = sumOf(c, of) + " " + place
		}
		if a.how == early {
			asked, before = began, askedOf[addr]
		}
		w.answers = append(w.answers, seen{
			server: a.server, asked: asked, at: time.Now(), stamp: w.stamp.find(before, text, nil),
		})
	}
	_, fine, err := c.watch.compareAll(c.Context())
	if err == nil {
		_, err = c.watch.settle(c.Context(), fine)
	}
	if err != nil {
		c.Fatal(err)
	}
	for _, m := range c.watch.watched { // as the next look would have the stamps moved
		if s := &m.watch.stamp; s.begun && c.watch.nodes[m.ID] != nil {
			_, place, _ := strings.Cut(s.last, " ")
			s.last = c.watch.nodes[m.ID].Slots.sum() + " " + place
		}
	}
	c.watch.keep(c.Context())
}

func sumOf(t testing.TB, slots string) string {
	t.Helper()
	var s SlotSet
	if err := s.UnmarshalText([]byte(slots)); err != nil {
		t.Fatal(err)
	}
	return s.sum()
}

// speaks returns of which slots the stamp of a master speaks: those that were known to be well there, or at the master
// whose replica it was.
func (c *told) speaks(a *answer) string {
	n := c.watch.nodes[a.id]
	for _, o := range c.watch.nodes {
		if n == nil && o.Repl == a.server.parent {
			n = o
		}
	}
	if n != nil {
		return n.Slots.sum()
	}
	m := c.watch.watched[a.id+":6379"]
	return m.Slots.sum()
}

// holds checks whose data the slots of a master are.
func (c *told) holds(id, slots string) {
	c.Helper()
	n := c.watch.nodes[id]
	if n == nil {
		if slots != "none" {
			c.Fatalf("%s is not known", id)
		}
		return
	}
	if text, _ := n.Slots.MarshalText(); string(text) != slots {
		c.Fatalf("%s has the slots %q, want %q", id, text, slots)
	}
}

// full is a server that has been up for long, and has keys.
func full(name string) server {
	return server{run: "run " + name, repl: "repl " + name, keys: 10, loaded: 5, uptime: time.Hour}
}

func TestWhatOfAClusterIsInDoubt(t *testing.T) {
	heir := full("heir")
	heir.parent = "repl one"
	orphan := heir
	orphan.parent = "repl of a time that nobody has seen"
	empty := full("new")
	empty.loaded = 0
	again := full("other")
	again.run, again.uptime = "run again", 0
	cleared := again
	cleared.keys, cleared.loaded = 0, 0
	began := full("one")
	began.run, began.uptime, began.keys, began.loaded = "run again", 0, 0, 0
	none := empty
	none.keys = 0
	one, other := answer{"one", "0-9", full("one"), "a", heard}, answer{"other", "10-19", full("other"), "b", heard}
	quiet := answer{id: "one", slots: "0-9", how: silent}
	for name, c := range map[string]struct {
		then [][]answer
		want []string
	}{
		"nothing has changed": {[][]answer{{one, other}}, nil},
		"a replica is promoted": {
			[][]answer{{{"heir", "0-9", heir, "a", heard}, other}}, []string{"a"},
		},
		"a replica is promoted while its master is cut off and answers": {
			[][]answer{{{"one", "", one.server, "", heard}, {"heir", "0-9", heir, "a", heard}, other}}, []string{"a"},
		},
		"the master that was cut off is seen first": {
			[][]answer{
				{{"one", "", one.server, "", heard}, {"heir", "0-9", heir, "a", silent}, other},
				{{"one", "", one.server, "", heard}, {"heir", "0-9", heir, "a", heard}, other},
			},
			[]string{"a"},
		},
		"a replica is promoted and gets another slot at once": {
			[][]answer{{{"heir", "0-10", heir, "a", heard}, {"other", "11-19", other.server, "b", heard}}}, []string{""},
		},
		"nobody knows whose replica it was": {
			[][]answer{{{"heir", "0-9", orphan, "a", heard}, other}}, []string{"a"},
		},
		"nobody knows whose replica it was, and it has not all slots": {
			[][]answer{{{"heir", "0-8", orphan, "a", heard}, other}}, []string{""},
		},
		"a node that was empty gets slots": {
			[][]answer{{{"one", "0-4", one.server, "a", heard}, {"new", "5-9", empty, "", heard}, other}}, nil,
		},
		"a node that has read data gets slots": {
			[][]answer{{{"one", "0-4", one.server, "a", heard}, {"new", "5-9", full("new"), "", heard}, other}}, []string{""},
		},
		"a node that has read data has been seen before it gets slots": {
			[][]answer{
				{one, {"new", "", full("new"), "", heard}, other},
				{{"one", "0-4", one.server, "a", heard}, {"new", "5-9", full("new"), "", heard}, other},
			}, []string{""},
		},
		"slots come from a node that is silent for a while": {
			[][]answer{
				{{"one", "", server{}, "", silent}, {"other", "0-19", other.server, "b", heard}},
				{{"one", "", one.server, "", heard}, {"other", "0-19", other.server, "b", heard}},
			}, nil,
		},
		"slots come from a node that has left, and had answered before they went": {
			[][]answer{
				{{"one", "", one.server, "", early}, {"other", "0-19", other.server, "b", heard}},
				{{"other", "0-19", other.server, "b", heard}},
			}, []string{""},
		},
		"slots come from a node that has left": {
			[][]answer{{{"other", "0-19", other.server, "b", heard}}}, []string{""},
		},
		"slots come from a node that had none any more and has left": {
			[][]answer{
				{{"one", "", one.server, "", heard}, {"other", "0-19", other.server, "b", heard}},
				{{"other", "0-19", other.server, "b", heard}},
			}, nil,
		},
		"slots come from a node that was started again since, with nothing": {
			[][]answer{{{"one", "", began, "", heard}, {"other", "0-19", other.server, "b", heard}}}, []string{""},
		},
		"some slots come from a node that was started again since, with nothing": {
			[][]answer{
				{{"one", "0-8", began, "a", heard}, {"other", "9-19", other.server, "b", silent}},
				{{"one", "0-8", began, "a", heard}, {"other", "9-19", other.server, "b", heard}},
			}, []string{""},
		},
		"slots come from a node that was looked at before it was started again": {
			[][]answer{
				{{"one", "", one.server, "", heard}, {"other", "0-19", other.server, "b", heard}},
				{{"one", "", began, "", heard}, {"other", "0-19", other.server, "b", heard}},
			}, nil,
		},
		"slots come from a node that was looked at after it was started again": {
			[][]answer{
				{{"one", "0-9", began, "a", heard}, other},
				{{"one", "", began, "", heard}, {"other", "0-19", other.server, "b", heard}},
			}, nil,
		},
		"a node is silent":        {[][]answer{{quiet, other}, {one, other}}, nil},
		"a node is started again": {[][]answer{{one, {"other", "10-19", again, "b", heard}}}, []string{"b"}},
		"its stamp is an older one": {
			[][]answer{{one, {"other", "10-19", other.server, "of before", heard}}}, []string{"of before"},
		},
		"a node is started again, and has other slots": {
			[][]answer{{{"one", "0-8", one.server, "a", heard}, {"other", "9-19", again, "b", heard}}}, []string{""},
		},
		"a node without slots is another server, and gets some later": {
			[][]answer{
				{one, other, {"new", "", empty, "", heard}},
				{one, other, {"new", "", full("another"), "", heard}},
				{{"one", "0-4", one.server, "a", heard}, other, {"new", "5-9", full("another"), "", heard}},
			}, []string{""},
		},
		"an empty node has been seen, and keys come to it before their slots do": {
			[][]answer{
				{one, other, {"new", "", none, "", heard}},
				{one, other, {"new", "", empty, "", heard}},
				{{"one", "0-4", one.server, "a", heard}, other, {"new", "5-9", empty, "", heard}},
			}, nil,
		},
		"a slot goes and comes back": {
			[][]answer{
				{{"one", "0-10", one.server, "a", heard}, {"other", "11-19", other.server, "b", heard}},
				{one, other},
			}, nil,
		},
		"a slot goes, a master comes back with older data, and so does the slot": {
			[][]answer{
				{{"one", "0-10", one.server, "a", heard}, {"other", "11-19", other.server, "b", heard}},
				{{"one", "0-10", one.server, "a", heard}, {"other", "11-19", again, "b", heard}},
				{one, {"other", "10-19", again, "b", heard}},
			}, []string{"b", ""},
		},
		"a slot goes, a replica is promoted, and the slot comes back": {
			[][]answer{
				{{"one", "0-8", one.server, "a", heard}, {"other", "9-19", other.server, "b", heard}},
				{{"heir", "0-8", heir, "a", heard}, {"other", "9-19", other.server, "b", heard}},
				{{"heir", "0-9", heir, "a", heard}, other},
			}, []string{"a", ""},
		},
		"a slot goes, a master comes back with older data, and another slot comes": {
			[][]answer{
				{{"one", "0-10", one.server, "a", heard}, {"other", "11-19", other.server, "b", heard}},
				{{"one", "0-10", one.server, "a", heard}, {"other", "11-19", again, "b", heard}},
				{{"one", "0-8 10", one.server, "a", heard}, {"other", "9 11-19", again, "b", heard}},
			}, []string{"b"},
		},
		"a slot goes, a master comes back without data, and so does the slot": {
			[][]answer{
				{{"one", "0-10", one.server, "a", heard}, {"other", "11-19", other.server, "b", heard}},
				{{"one", "0-10", one.server, "a", heard}, {"other", "11-19", cleared, "b", heard}},
				{one, {"other", "10-19", cleared, "b", heard}},
			}, nil,
		},
		"a node is another server and has got slots": {
			[][]answer{
				{one, other, {"new", "", empty, "", heard}},
				{{"one", "0-4", one.server, "a", heard}, other, {"new", "5-9", full("another"), "", heard}},
			},
			[]string{""},
		},
		"a node is another server and has got all slots of one, with its stamp": {
			[][]answer{
				{one, other, {"new", "", empty, "", heard}},
				{{"one", "", one.server, "", heard}, other, {"new", "0-9", full("another"), "0-9: a", heard}},
			},
			[]string{""},
		},
	} {
		for when, down := range map[string]bool{"": false, ", freshet was down": true} {
			if down && name == "its stamp is an older one" {
				continue // it is not kept which one it was
			}
			t.Run(name+when, func(t *testing.T) {
				r := newTold(t)
				r.look(one, other)
				r.look(one, other)
				for _, answers := range c.then {
					if down {
						r.begin()
					}
					r.look(answers...)
					r.look(answers...) // the same again is no other doubt
				}
				r.doubts(c.want...)
				for _, a := range c.then[len(c.then)-1] {
					r.holds(a.id, a.slots)
				}
			})
		}
	}
}

// A node that got its first slot after it was first looked at has connections by now, as the others.
func TestTheConnectionsToANodeThatWasEmptyAreLeft(t *testing.T) {
	r := newTold(t)
	one, none := answer{"one", "0-9", full("one"), "a", heard}, answer{"new", "", full("new"), "", heard}
	none.server.keys, none.server.loaded = 0, 0
	r.look(one, none)
	got := none
	got.slots, one.slots = "5-9", "0-4"
	r.look(one, got)
	r.look(one, got)
	got.server.run = "run another"
	r.look(one, got)
	if !slices.Equal(r.moved, []string{"new"}) {
		t.Errorf("left %q", r.moved)
	}
}

// Connections of before may go on while no look comes about: a master that begins with nothing meanwhile may be filled
// by others while keys are deleted on the one before.
func TestAMasterThatBeginsWhileTheFormerOneIsAtWorkIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		atWork time.Duration // how long ago it was
		want   []string
	}{"it began after that": {80 * time.Second, nil}, "it began before": {30 * time.Second, []string{""}}} {
		t.Run(name, func(t *testing.T) {
			r := newTold(t)
			r.look(answer{"one", "0-9", full("one"), "a", heard})
			r.watch.nodes["one"].Seen = time.Now().Add(-90 * time.Second)
			r.worked = time.Now().Add(-c.atWork)
			w := r.watch.watched["one:6379"].watch
			if err := w.answered(time.Now(), "run_id:b\r\nuptime_in_seconds:60\r\nrole:master\r\n"+
				"rdb_last_load_keys_loaded:0\r\naof_enabled:0\r\ndb0:keys=1\r\n", nil, found{}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.watch.compareAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.doubts(c.want...)
		})
	}
}

// What a node that hangs had when it gave its slots away may never be known.
func TestANodeThatIsSilentForLongCannotConfirm(t *testing.T) {
	r := newTold(t)
	one, other := answer{"one", "0-9", full("one"), "a", heard}, answer{"other", "10-19", full("other"), "b", heard}
	r.look(one, other)
	quiet := answer{id: "one", how: silent}
	other.slots = "0-19"
	r.look(quiet, other)
	r.doubts()
	r.holds("other", "10-19")
	r.watch.nodes["one"].Seen = time.Now().Add(-unwatched)
	r.look(quiet, other)
	r.doubts("")
	r.holds("other", "0-19")
	r.look(quiet, other)
	if l := r.book.List(); l[0].Count != 1 || !slices.Equal(r.moved, nil) {
		t.Errorf("%+v, left %q", l[0], r.moved)
	}
}

// What was read where the stamp was for a moment, with a slot of another master, speaks of that one's data.
func TestAStampCountsOnlyWhereItIsNow(t *testing.T) {
	r := newTold(t)
	one := answer{id: "one", slots: "1-9", server: full("one"), stamp: "a"}
	other := answer{id: "other", slots: "0 10-19", server: full("other"), stamp: "b"}
	r.look(one, other)
	r.look(one, other)
	r.look(answer{id: "one", slots: "0-9", how: silent}, answer{id: "other", slots: "10-19", how: silent})
	again := full("one")
	again.run, again.uptime = "run again", 0
	r.look(answer{id: "one", slots: "1-9", server: again, stamp: "b", how: early}, other)
	r.doubts("")
}

// A master that takes slots when their giver has given up and takes deletes again lacks these.
func TestSlotsThatAreTakenLateAreInDoubt(t *testing.T) {
	failed := func(slots, to string) migration {
		m := migration{to: to, failed: true}
		if err := m.slots.UnmarshalText([]byte(slots)); err != nil {
			t.Fatal(err)
		}
		return m
	}
	done := failed("9", "other")
	done.failed = false
	for name, c := range map[string]struct {
		moves []migration
		want  []string
	}{
		"a move has failed":             {[]migration{failed("0-3 9", "other")}, []string{""}},
		"one of before has not":         {[]migration{failed("9", "other"), done}, []string{""}},
		"nobody says of any":            {nil, nil},
		"it is over":                    {[]migration{done}, nil},
		"one of before has failed":      {[]migration{done, failed("9", "other")}, nil},
		"of other slots one has failed": {[]migration{failed("0-8 10-19", "other")}, nil},
		"to another master one has":     {[]migration{failed("9", "third")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTold(t)
			one, other := answer{"one", "0-9", full("one"), "a", heard}, answer{"other", "10-19", full("other"), "b", heard}
			r.look(one, other)
			r.look(one, other)
			one.slots, other.slots = "0-8", "9-19"
			r.unasked = errors.New("the line is cut")
			r.look(one, other)
			r.doubts()
			r.holds("other", "10-19")
			r.moves, r.unasked = c.moves, nil
			r.look(one, other)
			r.look(one, other)
			r.doubts(c.want...)
			r.holds("other", "9-19")
		})
	}
}

func TestWhatAServerSaysOfMigrationsIsRead(t *testing.T) {
	m, ok := parseMigration(map[any]any{
		"operation": "EXPORT", "slot_ranges": "3-3 5-7", "target_node": "other", "state": "failed", "cow_size": int64(0),
	})
	if text, _ := m.slots.MarshalText(); !ok || string(text) != "3 5-7" || m.to != "other" || !m.failed {
		t.Errorf("%+v, %v", m, ok)
	}
	m, ok = parseMigration([]any{
		"operation", "EXPORT", "slot_ranges", "3-3", "target_node", "other", "state", "success", "cow_size", int64(0),
	})
	if !ok || m.failed || m.slots.Len() != 1 {
		t.Errorf("%+v, %v", m, ok)
	}
	for _, other := range []any{nil, []any{"operation"}, map[any]any{"operation": "IMPORT", "slot_ranges": "3-3"}, "OK"} {
		if m, ok := parseMigration(other); ok {
			t.Errorf("%v is read as %+v", other, m)
		}
	}
}
