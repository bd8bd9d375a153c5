package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// In a Redis Cluster each master is watched as a single Redis is, with a stamp of its own. What is particular:
//
//   - A stamp lies in a slot of its master, so a replica that is promoted has that of its former master. When the slots
//     of a master change, its stamp may have to be in another slot, and what is found there says nothing new.
//   - A stamp moves with its slot, to a server whose data it does not speak of. So it counts only if the server has
//     exactly the slots that were watched there before, and if it says itself that it speaks of these. Otherwise nobody
//     knows how old the data is.
//   - A slot may come from a master that was not what it had been when it gave the slot away. So a slot is another's
//     from when its former owner was looked at, after it had gone, and was what it was. If that owner can not be
//     looked at any more, or has been started again since, what is in the slot is in doubt.
//   - A slot that a server moves by itself may lack the last deletes (migration.go): then it is in doubt as well.
//   - A master that comes back with older data has again what it had in slots that it has given away. It is in doubt if
//     it gets one of them back.
//
// A doubt about one node is answered for all keys, as that about a single Redis is.

// Member is a master of a cluster.
type Member struct {
	// ID is by which name the cluster knows it, Address host:port.
	ID, Address string
	// Slots are those that it has; none: it may get some.
	Slots SlotSet
	// Redis is as [Deps].Redis, of this one.
	Redis redis.Cmdable
	// Moved and Answered are as in [Deps], of this one; nil: nobody needs to know, or knows.
	Moved    func()
	Answered func() time.Time
}

// Cluster compares who the masters of a Redis Cluster are with who they were.
type Cluster struct {
	deps    Deps
	options Options
	// members returns all masters that are known now, those without slots as well. It must not block.
	members func() []Member
	news    chan struct{}
	began   time.Time
	begunBy func(context.Context, redis.Cmdable) ([]migration, error)

	mu sync.Mutex
	// watched are the masters of the last look, by address.
	watched map[string]*watched
	// unlooked are the addresses to which connections were made that nobody has looked at.
	unlooked map[string]bool

	// Only Run uses these. nodes are what is known of those that were seen, by ID; listed is when it was last known
	// who has which slots.
	nodes  map[string]*lineage
	stamp  string
	listed time.Time
}

// watched is a master that is watched.
type watched struct {
	Member
	watch *Watch
}

// NewCluster returns a watch of a cluster. Of d, Redis and Moved are not used. It asks nothing before [Cluster.Run].
func NewCluster(d Deps, o Options, members func() []Member) (*Cluster, error) {
	if members == nil || d.Facts == nil || d.Doubts == nil {
		return nil, errors.New("identity: needs members, facts and doubts")
	}
	if d.Alarms == nil {
		d.Alarms = (*alarm.Board)(nil)
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	return &Cluster{
		deps: d, options: o, members: members, news: make(chan struct{}, 1), began: time.Now(),
		begunBy: begunBy, watched: map[string]*watched{}, unlooked: map[string]bool{},
	}, nil
}

// Look is [Watch.Look] of the master at an address. A connection to one that is not watched yet is left once it is.
func (c *Cluster) Look(ctx context.Context, address string, conn redis.Cmdable) error {
	c.mu.Lock()
	w := c.watched[address]
	if w == nil {
		c.unlooked[address] = true
	}
	c.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.watch.Look(ctx, conn)
}

// leaveUnlooked leaves the connections to masters that are watched by now which nobody has looked at. They may lead to
// other servers than those that are made from now on.
func (c *Cluster) leaveUnlooked() {
	var left []*watched
	c.mu.Lock()
	for address, w := range c.watched {
		if c.unlooked[address] {
			left = append(left, w)
			delete(c.unlooked, address)
		}
	}
	c.mu.Unlock()
	for _, w := range left {
		w.watch.deps.Moved()
	}
}

// moved has the connections to the master at an address be left, and answered returns when one of them was last at
// work. Those that there are may have come after the first look: with its first slot.
func (c *Cluster) moved(address string) {
	if m := c.at(address); m != nil && m.Moved != nil {
		m.Moved()
	}
}

func (c *Cluster) answered(address string) time.Time {
	if m := c.at(address); m != nil && m.Answered != nil {
		return m.Answered()
	}
	return time.Time{}
}

func (c *Cluster) at(address string) *watched {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watched[address]
}

// Unheard is [Watch.Unheard] of the master with slots that has been unheard for longest.
func (c *Cluster) Unheard() (since time.Time, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watched {
		at, err := w.watch.Unheard()
		if !w.Slots.isEmpty() && !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since, why = at, err
		}
	}
	if len(c.watched) == 0 && time.Since(c.began) > unheardFor {
		return c.began, errors.New("no master of the cluster is known yet")
	}
	return since, why
}

// Run asks the masters who they are, compares, and records what is in doubt, until ctx ends.
func (c *Cluster) Run(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return nil //nolint:nilerr // ctx ended
	}
	kept := time.Time{}
	due := time.NewTimer(retry.ToBeat(asks))
	defer due.Stop()
	for {
		changed, err := false, error(nil)
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), asks)
			defer cancel()
			c.keep(last)
			return nil
		case <-c.news:
			changed, _, err = c.compareAll(ctx)
		case <-due.C:
			due.Reset(retry.ToBeat(asks))
			changed, err = c.look(ctx)
		}
		if err != nil {
			return nil //nolint:nilerr // ctx ended
		}
		if now := time.Now(); changed || now.Sub(kept) >= keeps {
			if c.keep(ctx) {
				kept = now
			} else {
				kept = time.Time{}
			}
		}
	}
}

// look looks at all masters, and reports whether anything new must be kept.
func (c *Cluster) look(ctx context.Context) (changed bool, err error) {
	c.follow()
	c.leaveUnlooked()
	changed, _, err = c.compareAll(ctx) // what was asked before
	if err != nil {
		return changed, err
	}
	asked, cancel := context.WithTimeout(ctx, 2*asks)
	defer cancel()
	var looking sync.WaitGroup
	for _, m := range c.watched {
		looking.Go(func() {
			if was := c.nodes[m.ID]; was != nil {
				m.watch.renew(asked, was.known, was.Slots.sum())
			}
			why, _ := m.watch.look(asked, m.Redis)
			m.watch.hears(why)
		})
	}
	looking.Wait()
	more, fine, err := c.compareAll(ctx)
	if err != nil {
		return changed, err
	}
	settled, err := c.settle(ctx, fine)
	return changed || more || settled, err
}

// follow watches those that are masters now.
func (c *Cluster) follow() {
	members := c.members()
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.watched
	c.watched = make(map[string]*watched, len(members))
	for _, m := range members {
		w := was[m.Address]
		if w == nil || w.ID != m.ID {
			o, d := c.options, c.deps
			o.Address, d.Redis = fmt.Sprintf("%s of %s", m.Address, c.options.Address), m.Redis
			d.Moved, d.Answered = func() { c.moved(m.Address) }, func() time.Time { return c.answered(m.Address) }
			w = &watched{watch: &Watch{
				deps: d, options: o, news: c.news, stamp: stamp{leads: d.Leads == nil}, heard: time.Now(),
				unheard: errors.New("none was tried"),
			}}
			if is := c.nodes[m.ID]; is != nil {
				w.watch.worksOn(is.Run)
			}
		}
		w.watch.deps.Redis = m.Redis
		w.watch.stamp.place(m.Slots.stampKey(c.options.Prefix, c.stamp))
		w.watch.stamp.belongs(m.Slots.sum())
		c.watched[m.Address] = &watched{m, w.watch}
	}
	c.listed = time.Now()
}

// compareAll compares all that was answered. fine are those that have answered, by ID, and were asked after it was
// known which slots are whose. It fails only with ctx.
func (c *Cluster) compareAll(ctx context.Context) (changed bool, fine map[string]bool, err error) {
	fine = map[string]bool{}
	for _, m := range c.watched {
		for _, s := range m.watch.take() {
			fine[m.ID] = fine[m.ID] || !s.asked.Before(c.listed)
			differs, err := c.compare(ctx, m, s)
			if err != nil {
				return changed, fine, err
			}
			m.watch.worksOn(s.run)
			changed = changed || differs
		}
	}
	return changed, fine, nil
}

// compare records what is in doubt about a master, and takes note of who it is. It fails only with ctx.
func (c *Cluster) compare(ctx context.Context, m *watched, s seen) (changed bool, err error) {
	if s.stamp.before.key != m.watch.stamp.known().key {
		s.stamp = found{before: s.stamp.before} // it is elsewhere by now: what was there may be another master's
	}
	is := &lineage{known: known{Run: s.run, Repl: s.repl, Seen: s.at}}
	was, former := c.nodes[m.ID], ""
	if was == nil {
		was, former = c.former(m, s)
	}
	if was == nil {
		if err := c.meet(ctx, m, s, is); err != nil {
			return false, err
		}
		c.nodes[m.ID] = is
		return true, nil
	}
	is.Slots, is.Gave, is.Old, is.Unasked = was.Slots, was.Gave, was.Old, was.Unasked
	if is.Run != was.Run && former == "" {
		m.watch.deps.Moved() // first: the doubt is about all that was acknowledged before it
	}
	until := was.until(s)
	why := suspicion(until, s.server, s.at)
	if why == "" && s.stamp.is == another && m.watch.stamp.known() == s.stamp.before {
		why = "the stamp that freshet keeps in it is an older one"
	}
	is.cameBack(why, until, s, &m.Slots)
	if is.Run != was.Run && former == "" && why == "" {
		gone := is.Slots.without(&m.Slots)
		is.Unasked.add(&gone)
	}
	switch {
	case why == "" || is.Slots.isEmpty() && m.Slots.isEmpty():
		m.watch.stamp.confirm(s.stamp)
	default:
		if is.Slots != m.Slots {
			s.stamp = found{before: s.stamp.before} // it may have come with a slot
		}
		if err := m.watch.doubt(ctx, why, s, m.watch.lacks(was.known, s)); err != nil {
			return false, err
		}
		m.watch.stamp.adopt(s.stamp)
	}
	if former != "" {
		delete(c.nodes, former)
	}
	c.nodes[m.ID] = is
	return is.Run != was.Run || is.Repl != was.Repl, nil
}

// former returns what is known of the data that a master has which was not seen before: that of the master whose
// replica it was.
func (c *Cluster) former(m *watched, s seen) (was *lineage, id string) {
	for id, n := range c.nodes {
		if s.parent != "" && n.Repl == s.parent {
			return n, id
		}
	}
	return nil, ""
}

// meet takes note of a master that nobody has seen before, in is. Slots come to one that was empty with all that was
// done to them. One that brought data of its own, or was a replica of nobody knows whom, may have what was deleted.
func (c *Cluster) meet(ctx context.Context, m *watched, s seen, is *lineage) error {
	exact := false
	for _, n := range c.nodes {
		came := m.Slots.and(&n.Slots)
		is.Slots.add(&came)
		exact = exact || n.Slots == m.Slots
	}
	if is.Slots.isEmpty() || s.keys == 0 || s.loaded == 0 && s.parent == "" {
		is.Slots = SlotSet{}
		if m.Slots.isEmpty() && s.keys != 0 && (s.loaded != 0 || s.parent != "") {
			is.Old.fill()
		}
		m.watch.stamp.confirm(s.stamp)
		return nil
	}
	if !exact || s.parent == "" {
		s.stamp = found{before: s.stamp.before}
	}
	why := "it has slots of another master, and nothing says that the deletes reached it"
	if err := m.watch.doubt(ctx, why, s, m.watch.lacks(known{Seen: s.at}, s)); err != nil {
		return err
	}
	for _, n := range c.nodes {
		n.give(n.Slots.and(&is.Slots))
	}
	m.watch.stamp.adopt(s.stamp)
	return nil
}

// settle takes note of slots that have another owner, if the former one was still what it was after they had gone.
// Those are fine which have answered a look of since then. It fails only with ctx.
func (c *Cluster) settle(ctx context.Context, fine map[string]bool) (changed bool, err error) {
	listed := map[string]*watched{}
	for _, m := range c.watched {
		listed[m.ID] = m
	}
	for _, m := range c.watched {
		is := c.nodes[m.ID]
		if is == nil || !fine[m.ID] {
			continue
		}
		gained := m.Slots.without(&is.Slots)
		for id, from := range c.nodes {
			came := gained.and(&from.Slots)
			if came.isEmpty() {
				continue
			}
			unasked, late := came.and(&from.Unasked), SlotSet{}
			heard := fine[id] && unasked.isEmpty()
			if heard {
				moves, err := c.begunBy(ctx, listed[id].Redis)
				heard, late = err == nil, takenLate(moves, came, m.ID)
			}
			if !heard {
				if unasked.isEmpty() && listed[id] != nil && time.Since(from.Seen) < unwatched {
					gained = gained.without(&came) // it may answer yet
					continue
				}
				if err := c.lost(ctx, m, from, came.Len()); err != nil {
					return changed, err
				}
			}
			if !late.isEmpty() {
				if err := c.late(ctx, m, listed[id], late.Len()); err != nil {
					return changed, err
				}
			}
			from.give(came)
		}
		if gained.isEmpty() {
			continue
		}
		if old := gained.and(&is.Old); !old.isEmpty() {
			if err := c.regained(ctx, m, old.Len()); err != nil {
				return changed, err
			}
		}
		is.gain(gained)
		changed = true
	}
	for id, n := range c.nodes {
		if n.Slots.isEmpty() && listed[id] == nil {
			delete(c.nodes, id)
			changed = true
		}
	}
	return changed, nil
}
