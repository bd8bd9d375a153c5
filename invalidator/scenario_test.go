package invalidator

import (
	"math/rand/v2"
	"slices"
	"time"
)

// hazards says how likely which trouble is in a scenario. A mutant is looked for among those that can hurt it; the
// whole rule is tried on all mixtures.
type hazards struct {
	ahead   float64 // an event comes seconds before its change is visible
	lag     float64 // the second server lags
	stall   float64 // Redis hangs
	short   float64 // of the hangs, those that are about as long as D/4
	lose    float64 // a round trip's connection or reply is lost
	unused  float64 // of these, because the connection was not used for a while and closed
	refuse  float64 // Redis refuses one key for a while
	away    float64 // Redis refuses everything for a while
	crash   float64 // freshet is killed and comes back
	kafka   float64 // batches come without an age, marks late, duplicates out of order
	liar    float64 // with kafka: an old leader leaves a server out, and a new one sends again
	bothDs  float64 // rows have two mappings with different D
	quicks  float64 // a row's only mapping has the small D
	tight   float64 // the caps are tiny
	full    float64 // the store takes few keys
	precise float64 // a fill lands just before its bound, rather than anywhere

	values  float64 // a row's key is rebuilt, from the row or by query, rather than deleted
	queried float64 // of these, by query
	bundled float64 // queries are quick, and run together
	none    float64 // a row's mapping has a D of 0, and its readers are as fast: what they read takes effect at once
	told    float64 // a local cache is told of what is done to a row's key
	limited float64 // a row's mapping has a rate limit of its own
	evict   float64 // Redis forgets keys, and what their guards know, once nothing has been written to them for long
	behind  float64 // with kafka: an old leader's leftovers come long after everything else
	walk    float64 // rows are read from their table, and written or forgotten
	scope   float64 // something happens that no event tells of, and Redis is searched
	goBack  float64 // Redis goes back to what it held, and what was done since is done again
	moves   float64 // Redis is a cluster, and slots move from node to node
	again   float64 // with kafka: the same by the present leader, which no real one does without sending all that followed
	apart   float64 // with kafka: another process than that of the log walks, searches, and does again what was done
	linger  float64 // with apart: a process that is stopped, and replaced, goes on for a while
}

// kind is how the world's rows are mapped.
type rowKind struct {
	values, query bool
	instant       bool // D is 0
	told          bool
	limit         int
}

// scenario is everything about a world that is settled before it runs.
type scenario struct {
	hazards
	rows     int
	servers  int
	small    time.Duration // the D of some mappings
	d        time.Duration // the D of the others
	twoDs    bool          // the rows that are not quick have mappings of both
	quick    []bool        // by row: it has one with the small D only
	changes  []change
	stalls   []stall
	refusals []window
	fills    []fill
	crashes  []window // from: killed, to: back
	askEvery time.Duration
	lateMark time.Duration
	isKafka  bool
	isLiar   bool
	// isApart says that another process does what is done besides the log. Its crashes are leaderCrashes. lingers is for
	// how long each process goes on once another one has its place.
	isApart       bool
	leaderCrashes []window
	lingers       time.Duration
	takeover      time.Duration
	caps          Options
	oneQuery      bool // there is room for no more than one unit that waits for its query
	bundles       bool // queries are quick, and one worker asks for several rows together
	limit         int
	kinds         []rowKind       // by row
	evicts        []time.Duration // when Redis forgets what has not been written to for long
	lates         []int           // changes that come again, long after
	errands       []*errand
	backs         []*snapshot
	nodes         int // of Redis
	// clocks are by how much their clocks are ahead, slotMoves the moves of slots in the order of their ends by row.
	clocks    []time.Duration
	slotMoves []slotMove
	end       time.Duration // nothing happens from outside after it
}

// draw makes a scenario out of the hazards.
func draw(h hazards, rng *rand.Rand) scenario {
	s := scenario{hazards: h, rows: 1 + rng.IntN(3), servers: 1 + rng.IntN(2)}
	yes := func(p float64) bool { return rng.Float64() < p }
	if h.bundled > 0 && yes(h.bundled) {
		s.bundles, s.caps.QueryWorkers = true, 1
		s.rows += 5
	}
	span := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	s.d = []time.Duration{400 * time.Millisecond, time.Second, 2 * time.Second}[rng.IntN(3)]
	s.small = s.d / 10
	s.twoDs = yes(h.bothDs)
	s.quick = make([]bool, s.rows)
	for row := range s.quick {
		s.quick[row] = yes(h.quicks)
	}
	if yes(h.lag) {
		s.servers = 2
	}
	s.askEvery = span(50*time.Millisecond, time.Second)
	s.lateMark = span(0, 300*time.Millisecond)
	s.isKafka = yes(h.kafka)
	if s.isLiar = s.isKafka && yes(h.liar); s.isLiar {
		s.servers = 2
	}
	s.drawChanges(rng, yes, span)
	s.takeover = span(s.changes[0].event, s.last()+2*time.Second)
	s.drawFaults(yes, span)
	s.drawFills(rng, yes, span)
	if yes(h.tight) {
		s.caps.MaxInFlight, s.caps.MaxPending = 1+rng.IntN(3), 1+rng.IntN(3)
		s.caps.QueryWorkers, s.oneQuery = 1, true
	}
	if yes(h.full) {
		s.limit = 1
	}
	s.settleEnd()
	s.drawValues(rng, yes, span)
	s.drawPast(yes, span)
	s.drawNodes(yes, span)
	return s
}

// untouched is for how long a key has not been written to when Redis forgets it: longer than duplicates are late.
const untouched = 8 * time.Second

// drawValues settles what the rows' mappings do.
func (s *scenario) drawValues(rng *rand.Rand, yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	s.kinds = make([]rowKind, s.rows)
	for row := range s.kinds {
		k := &s.kinds[row]
		k.values = yes(s.values)
		k.query = k.values && yes(s.queried)
		k.instant = yes(s.none)
		k.told = yes(s.told)
		if yes(s.limited) {
			k.limit = 2 + rng.IntN(10)
		}
	}
	s.fills = slices.DeleteFunc(s.fills, s.mayNotBe)
	for i := range s.fills {
		if f := &s.fills[i]; s.kinds[f.row].instant {
			f.written = f.read
		}
	}
	for range 3 {
		if yes(s.evict) {
			s.evicts = append(s.evicts, s.end+untouched+span(0, 10*time.Second))
		}
	}
	for i := range s.changes {
		if s.isKafka && (yes(s.behind) && s.isLiar && s.changes[i].event <= s.takeover || yes(s.again)) {
			s.lates = append(s.lates, i)
		}
	}
	if len(s.lates) > 0 && yes(s.crash) {
		from := s.end + 25*time.Second
		s.crashes = append(s.crashes, window{from: from, to: from + span(0, s.d)})
	}
}

// mayNotBe reports whether a reader that must be instant is not, because Redis hangs: it has to give the fill up.
func (s *scenario) mayNotBe(f fill) bool {
	return s.kinds[f.row].instant &&
		slices.ContainsFunc(s.stalls, func(st stall) bool { return st.from <= f.read && f.read < st.to })
}

func (s *scenario) drawChanges(rng *rand.Rand, yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	t := span(0, 2*time.Second)
	for range 1 + rng.IntN(6) {
		if yes(0.6) {
			t += span(0, 30*time.Millisecond)
		} else {
			t += span(0, 2*s.d)
		}
		c := change{row: rng.IntN(s.rows), event: t}
		visible := t + span(-5*time.Millisecond, 5*time.Millisecond)
		if yes(s.ahead) {
			visible = t + span(0, 3*s.d)
		}
		c.visible = append(c.visible, visible)
		if s.servers > 1 {
			lag := span(0, 5*time.Millisecond)
			if yes(s.lag) || s.isLiar {
				lag = span(0, 3*s.d)
			}
			c.visible = append(c.visible, visible+lag)
		}
		s.changes = append(s.changes, c)
	}
}

// last is when the last change is visible everywhere.
func (s *scenario) last() time.Duration {
	var last time.Duration
	for _, c := range s.changes {
		last = max(last, c.event, slices.Max(c.visible))
	}
	return last
}

func (s *scenario) drawFaults(yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	until := s.last() + 2*s.d
	at := func() time.Duration {
		// Mostly about when a delete of some change is on its way.
		c := s.changes[int(span(0, time.Duration(len(s.changes))))]
		if yes(0.5) {
			return c.event + span(-100*time.Millisecond, 100*time.Millisecond)
		}
		return span(0, until)
	}
	for range 3 {
		if yes(s.stall) {
			from := max(at(), 0)
			if yes(0.5) {
				from += s.d
			}
			length := span(0, 3*s.d)
			if yes(s.short) {
				length = span(s.d/8, s.d/2)
			}
			s.stalls = append(s.stalls, stall{from: from, to: from + length})
		}
		if yes(s.crash) {
			from := max(at(), 0)
			if yes(0.5) {
				from += s.d / 2
			}
			s.crashes = append(s.crashes, window{from: from, to: from + span(0, 2*s.d)})
		}
		if yes(s.refuse) {
			from := max(at()-s.d/4, 0)
			s.refusals = append(s.refusals, window{
				from: from, to: from + span(0, 4*s.d), row: int(span(0, time.Duration(s.rows))),
				answer: "NOPERM No permissions to access a key",
			})
		}
		if yes(s.away) {
			from := max(at(), 0)
			s.refusals = append(s.refusals, window{
				from: from, to: from + span(0, 2*s.d), row: -1,
				answer: "READONLY You can't write against a read only replica.",
			})
		}
	}
	slices.SortFunc(s.stalls, func(a, b stall) int { return int(a.from - b.from) })
	for i := 1; i < len(s.stalls); i++ {
		s.stalls[i].from = max(s.stalls[i].from, s.stalls[i-1].to)
		s.stalls[i].to = max(s.stalls[i].to, s.stalls[i].from)
	}
	slices.SortFunc(s.crashes, func(a, b window) int { return int(a.from - b.from) })
}

// drawFills has readers read just before each change becomes visible to them, which is when it matters, and at
// any time.
func (s *scenario) drawFills(rng *rand.Rand, yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	add := func(row int, read time.Duration) {
		f := fill{row: row, server: rng.IntN(s.servers), read: read}
		s.write(&f, yes, span)
		s.fills = append(s.fills, f)
	}
	for _, c := range s.changes {
		for server := range s.servers {
			for range 2 {
				f := fill{row: c.row, server: server, read: c.visible[server] - span(1, 3*time.Millisecond)}
				s.write(&f, yes, span)
				s.fills = append(s.fills, f)
			}
		}
		add(c.row, span(0, s.last()+s.d))
	}
}

// mappings returns the D of each of the row's mappings.
func (s *scenario) mappings(row int) []time.Duration {
	switch {
	case s.kinds != nil && s.kinds[row].instant:
		return []time.Duration{0}
	case s.quick[row]:
		return []time.Duration{s.small}
	case s.twoDs:
		return []time.Duration{s.small, s.d}
	}
	return []time.Duration{s.d}
}

// bound is the D that the row's readers keep to.
func (s *scenario) bound(row int) time.Duration { return slices.Max(s.mappings(row)) }

// write settles when a fill takes effect.
func (s *scenario) write(f *fill, yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	d := s.bound(f.row)
	within := func(from time.Duration) time.Duration {
		if yes(s.precise) {
			return from + d - span(1, 3*time.Millisecond)
		}
		return from + span(0, d)
	}
	f.written = within(f.read)
	for _, st := range s.stalls {
		switch {
		case !s.holdsUp(st, f):
		case st.to <= f.read || st.from > f.written:
		case st.to-st.from > d/4:
			f.written = within(st.to)
		case st.from <= f.written && f.written < st.to:
			// A short hang is part of the D that the reader keeps to.
			f.written = max(f.read, st.from-1)
		}
	}
}

func (s *scenario) settleEnd() {
	s.end = s.last()
	for _, f := range s.fills {
		s.end = max(s.end, f.written)
	}
	for _, x := range s.stalls {
		s.end = max(s.end, x.to)
	}
	for _, x := range slices.Concat(s.crashes, s.refusals) {
		s.end = max(s.end, x.to)
	}
	for _, e := range s.errands {
		s.end = max(s.end, e.at)
	}
	for _, m := range s.slotMoves {
		s.end = max(s.end, m.end)
	}
	s.end += time.Millisecond
}
