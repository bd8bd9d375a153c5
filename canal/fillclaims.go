package canal

import (
	"errors"

	"github.com/freshet/freshet/event"
)

// claims are what MariaDB said that a fill server has replicated, the last transaction of each domain.
//
// A number says nothing by itself: a server that was left behind by a failover has given the next ones to transactions
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
func (a *answer) wrote(r event.GTIDRange) (is bool) {
	a.own.Each(func(own event.GTIDRange) {
		is = is || own.First.Domain == r.First.Domain && own.First.Server == r.First.Server && own.Last >= r.Last
	})
	return is
}

// lacks reports whether an answer does not hold all of a set.
func (a *answer) lacks(set *event.GTIDSet) (is bool) {
	rest := set.Subtract(&a.gtids)
	rest.Each(func(r event.GTIDRange) { is = is || !a.wrote(r) })
	return is
}
