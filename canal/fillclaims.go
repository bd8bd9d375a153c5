package canal

import (
	"errors"
	"time"

	"github.com/freshet/freshet/event"
)

// claims are what MariaDB said that a fill server has replicated, the last transaction of each domain.
//
// A number says nothing by itself: a server that a failover has left out has given the next ones to transactions
// of its own, or got them from one that has. So a transaction counts once the source is known to have it too: it had it
// when the stream began, or it came down the stream since. A replica may have it before that, so what it said is kept
// until then.
type claims struct {
	waiting, counts map[uint32]event.GTID
}

var errNotBegun = errors.New("it is not known yet which transactions the source has")

// of returns what of the present answer of a fill server counts.
func (c *claims) of(v *visibility, said *event.GTIDSet) (set event.GTIDSet, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.logged == nil {
		return set, errNotBegun
	}
	if c.waiting == nil {
		c.waiting, c.counts = map[uint32]event.GTID{}, map[uint32]event.GTID{}
	}
	said.Each(func(r event.GTIDRange) {
		last := r.First
		d := last.Domain
		if w, waits := c.waiting[d]; !waits || w.Server != last.Server || w.Number > last.Number {
			c.waiting[d] = last
		} else if v.knows(w) {
			c.counts[d], c.waiting[d] = w, last
		}
		if v.knows(last) {
			c.counts[d] = last
			delete(c.waiting, d)
		}
		if counts := c.counts[d]; counts.Number <= last.Number && v.knows(counts) {
			set.Add(counts)
		}
	})
	return set, nil
}

// knows reports whether the source has a transaction of MariaDB's. The caller has the lock.
func (v *visibility) knows(g event.GTID) bool {
	of := origin{g.Domain, g.Server}
	return g.Number > 0 && max(v.logged[of], v.held[of]) >= g.Number
}

// wrote reports whether the server that gives an answer has made a transaction itself.
func (a *answer) wrote(r event.GTIDRange) bool { return a.own.ContainsOf(r) }

// lacks reports whether an answer does not hold all of a set.
func (a *answer) lacks(set *event.GTIDSet) (is bool) {
	rest := set.Subtract(&a.gtids)
	rest.Each(func(r event.GTIDRange) { is = is || !a.wrote(r) })
	return is
}

// has asks what everybody can read on the server. On MySQL gtid_executed moves only when a commit is visible; on
// MariaDB gtid_slave_pos does, for what was replicated, and the snapshot of its own binlog for what it wrote itself.
func (s *fillServer) has(a *answer) error {
	asks := "SELECT @@global.gtid_executed"
	if s.options.Flavor == event.MariaDB {
		asks = "SELECT @@global.gtid_slave_pos"
	}
	r, err := s.session.row(asks)
	if err != nil {
		return err
	}
	if s.options.Flavor == event.MySQL && r[0] == s.text && s.had != nil {
		a.gtids = s.had.gtids
		return nil
	}
	s.text = r[0]
	a.gtids, err = event.ParseGTIDSet(s.options.Flavor, r[0])
	if err != nil || s.options.Flavor == event.MySQL {
		return err
	}
	if !s.alone {
		if a.gtids, err = s.claims.of(s.vis, &a.gtids); err != nil {
			return err
		}
	}
	a.own = s.own
	if time.Since(s.ownAt) < s.o.Heartbeat || !s.seemsToLack(&a.gtids) {
		return nil
	}
	s.ownAt = time.Now()
	a.own, err = s.written()
	s.own = a.own
	return err
}

// written asks MariaDB what it has written itself, which its binlog has in between of what it has replicated. Its
// numbers say nothing of that: an ANALYZE TABLE on a replica takes the next one, as if it had the source's transaction
// of that number.
func (s *fillServer) written() (own event.GTIDSet, err error) {
	v, err := s.session.snapshot()
	if err != nil { // it has no binlog
		return own, nil
	}
	all, err := s.session.gtidPos(v.at)
	if err != nil {
		return own, err
	}
	own = all.Of(s.id)
	s.own.Each(func(r event.GTIDRange) { // after which it has replicated something
		if all.ContainsRange(r) && !own.ContainsRange(r) {
			own.AddRange(r)
		}
	})
	return own, nil
}

// seemsToLack reports whether a set has less than is waited for, or than the server had before.
func (s *fillServer) seemsToLack(set *event.GTIDSet) bool {
	a := answer{gtids: *set, own: s.own, named: true, whole: true}
	if s.had == nil || s.had.ahead(&a) {
		return true
	}
	c, lacks := s.vis.fillLacks(s.view)
	return lacks && !a.holds(&c)
}
