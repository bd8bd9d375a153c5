package canal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// lookTimeout bounds each wait for a server that may be chosen, and lookLonger is how long the others are waited for
// once one has answered that could be: a dead machine must not hold up the change to a living one.
const (
	lookTimeout = 5 * time.Second
	lookLonger  = time.Second
)

// candidate is what one of several servers says.
type candidate struct {
	address string
	// err is why it cannot be used at all.
	err  error
	info *SourceInfo
	// logged is what MariaDB's binlog has, of each server that transactions began on.
	logged map[origin]uint64
	// lacks is what of the position it does not have: never, or not yet.
	lacks event.GTIDSet
	// purged says that its binlog begins after the position.
	purged bool
	// readOnly says that it takes no writes of applications.
	readOnly bool
	standing
}

// holds reports whether the server has all that was passed.
func (c *candidate) holds() bool { return c.err == nil && c.lacks.IsEmpty() }

// takesWrites reports whether transactions begin on the server.
func (c *candidate) takesWrites() bool { return c.err == nil && !c.readOnly && !c.replicates }

// has reports whether the server has all that the other has executed.
func (c *candidate) has(other *candidate) bool {
	if c.info.Flavor != other.info.Flavor {
		return false
	}
	if c.info.Flavor == event.MySQL {
		rest := other.info.Executed.Subtract(&c.info.Executed)
		return rest.IsEmpty()
	}
	for o, last := range other.logged {
		if !c.hasMade(event.GTID{Domain: o.domain, Server: o.server, Number: last}, other) {
			return false
		}
	}
	return true
}

// hasMade reports whether MariaDB has a transaction of another server's. Numbers do not say whose they are: two servers
// that both take writes in a domain give the same ones. A server has it if it has logged it, or a later one of the
// server that made it, or has replicated so far. other is nil if it is not known what else there is.
func (c *candidate) hasMade(g event.GTID, other *candidate) bool {
	return c.logged[origin{g.Domain, g.Server}] >= g.Number || c.hasReplicated(g, other)
}

// hasReplicated reports whether MariaDB's gtid_slave_pos is beyond a transaction of another server's. It says nothing
// where the server has made its last transaction itself: MASTER_DEMOTE_TO_SLAVE puts that there. Nor does it where the
// other one has gone another way before that: the last one may be of a primary that has failed, which the promoted one
// lacks, and whose number it has given to a transaction of its own.
func (c *candidate) hasReplicated(g event.GTID, other *candidate) (has bool) {
	c.info.Replicated.Each(func(r event.GTIDRange) {
		own := r.First.Server == c.info.ServerID && c.logged[origin{r.First.Domain, r.First.Server}] >= r.Last
		has = has || r.First.Domain == g.Domain && r.Last >= g.Number && !own && (other == nil || other.leadsTo(r))
	})
	return has
}

// leadsTo reports whether MariaDB has the last transaction of a run, or may come to have it: what it has last in that
// domain is of the same server.
func (c *candidate) leadsTo(r event.GTIDRange) bool {
	has := c.logged[origin{r.First.Domain, r.First.Server}]
	if has >= r.Last {
		return true
	}
	for o, last := range c.logged {
		if o.domain == r.First.Domain && last > has {
			return false
		}
	}
	return true
}

// isLeftBehind reports whether the server will never say what is written on the other one. It is what a failover leaves
// of a primary that was not set up as a replica, or a replica without a binlog of what it replicates. Of two that take
// writes, the one that lacks something is left behind by one that lacks nothing.
func (c *candidate) isLeftBehind(other *candidate) bool {
	switch {
	case c.info.Server == other.info.Server: // it may have two names
		return false
	case c.isFenced() && !other.readOnly && other.info.LogReplicaUpdates:
		return !c.has(other) // the other may still have a replica's settings
	case !other.takesWrites():
		return false
	case c.replicates:
		return !c.info.LogReplicaUpdates
	}
	return other.has(c) && !c.has(other)
}

// isFenced reports whether nothing is written on the server at all.
func (c *candidate) isFenced() bool { return c.readOnly && !c.replicates }

// look asks all servers, at the same time, what they have of a position. The answers are in the order of the addresses.
func (o *Options) look(ctx context.Context, p *event.Position) []candidate {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make([]candidate, len(o.Servers.addresses))
	enough := time.AfterFunc(time.Hour, cancel)
	defer enough.Stop()
	var all sync.WaitGroup
	for i, address := range o.Servers.addresses {
		all.Go(func() {
			seen[i] = o.lookAt(ctx, address, p)
			if seen[i].holds() {
				enough.Reset(lookLonger)
			}
		})
	}
	all.Wait()
	return seen
}

// lookAt asks one server.
func (o *Options) lookAt(ctx context.Context, address string, p *event.Position) candidate {
	c := candidate{address: address}
	var s *session
	if s, c.err = o.connectTo(ctx, address, lookTimeout); c.err != nil {
		return c
	}
	defer s.quit()
	if c.info, c.err = o.identify(s); c.err == nil {
		c.err = c.info.usable()
	}
	if c.err == nil {
		c.err = s.settings(c.info)
	}
	if c.err == nil && p.Flavor != "" && p.Flavor != c.info.Flavor {
		c.err = fmt.Errorf("it is %s, and the position is one of %s", c.info.Flavor, p.Flavor)
	}
	if is, why := c.info.HasGTIDsOfAll(); c.err == nil && !is {
		c.err = fmt.Errorf("source %s: %s: %w", address, why, errNoGTIDs)
		return c
	}
	if c.err == nil {
		c.err = c.compare(s, p)
	}
	if c.err != nil {
		c.err = fmt.Errorf("source %s: %w", address, c.err)
	}
	return c
}

// compare finds out what the server has of a position, and what it does.
func (c *candidate) compare(s *session, p *event.Position) error {
	r, err := s.row("SELECT @@global.read_only")
	if err != nil {
		return err
	}
	c.readOnly = r[0] != "0" && r[0] != "OFF"
	c.standing = s.standing(c.info.Flavor)
	if c.info.Flavor == event.MySQL {
		c.lacks = p.GTIDs.Subtract(&c.info.Executed)
		purged := c.info.Purged.Subtract(&p.GTIDs)
		c.purged = !p.IsZero() && !purged.IsEmpty()
		if c.info.Server == p.Server { // it sends a transaction before it is committed
			c.lacks = c.lacks.Subtract(&c.info.Owned)
		}
		return nil
	}
	return c.compareMariaDB(s, p)
}

func (c *candidate) compareMariaDB(s *session, p *event.Position) (err error) {
	if c.logged, err = s.binlogState(); err != nil {
		return err
	}
	p.GTIDs.Each(func(r event.GTIDRange) {
		g := r.First
		g.Number = r.Last
		if !c.hasMade(g, nil) {
			c.lacks.Add(g)
		}
	})
	if p.IsZero() {
		return nil
	}
	files, err := s.binlogFiles()
	if err != nil || len(files) == 0 {
		return err
	}
	begins, err := s.gtidPos(binlogPos{file: files[0].Name, pos: firstEvent})
	if err == nil {
		purged := begins.Subtract(&p.GTIDs)
		c.purged = !purged.IsEmpty()
	}
	return err
}

// choice returns the servers that could be read from a position, the best first, and whether a server must be waited
// for before a loss is taken for one: it may have, or get, what the others have not.
//
// In the order of the addresses these are the servers that have all that was passed, first those that still have what
// comes next. Then comes the server of the position itself: it may have lost what was read, and says so when it is
// asked again. One that another one leaves behind is none. A position by file is one of its own server only.
func choice(seen []candidate, p *event.Position) (order []*candidate, wait bool) {
	byFile := !p.IsZero() && p.GTIDs.IsEmpty() && p.File != ""
	var purged, last []*candidate
	for i := range seen {
		c := &seen[i]
		same := c.err == nil && c.info.Server == p.Server
		switch {
		case c.err != nil:
		case byFile && !same:
		case !c.holds() && !same:
			wait = wait || c.replicates
		case slices.ContainsFunc(seen, func(o candidate) bool { return o.holds() && c.isLeftBehind(&o) }):
		case !c.holds():
			last = append(last, c)
		case c.purged:
			purged = append(purged, c)
		default:
			order = append(order, c)
		}
	}
	return slices.Concat(order, purged, last), wait
}

// passed is the position that a server must have all of.
func (l *loop) passed() event.Position {
	if l.server == "" {
		return l.checkpoint.Position()
	}
	return l.position()
}

// connectAny begins a dump at the first of several servers that has all that was passed.
func (l *loop) connectAny(ctx context.Context) error {
	p := l.passed()
	seen := l.o.look(ctx, &p)
	err := errors.Join(withoutGTIDs(seen), mixed(seen))
	if err != nil && !l.reconnect.stood {
		return err
	}
	order, wait := choice(seen, &p)
	slices.SortStableFunc(order, l.reconnect.refusedLast)
	if len(order) == 0 && l.gap != nil { // no server has all, which may be why there is a gap
		seen = l.o.look(ctx, &event.Position{})
		order, wait = choice(seen, &event.Position{})
	}
	var gap error
	errs := []error{unanswered(seen)}
	for _, c := range order {
		if l.apart, err = l.doubtIfSplit(ctx, seen, c.info.Server, c.address); err != nil {
			return err
		}
		err := l.connectTo(ctx, c.address)
		if err == nil || l.fatal != nil {
			return err
		}
		lost := (*GapError)(nil)
		switch {
		case !errors.As(err, &lost):
			errs = append(errs, fmt.Errorf("%s: %w", c.address, err))
		case gap == nil && (c.holds() || !wait):
			gap = err
		}
	}
	if gap != nil && ctx.Err() == nil {
		return gap
	}
	if err := errors.Join(append(errs, l.behind(seen, &p))...); err != nil {
		return err
	}
	return &GapError{
		Position: p, Fix: fixPurged, Reason: "it is one by file, of server " + p.Server + ", which is at none of " +
			"source.addresses, and means nothing on another server",
	}
}

// withoutGTIDs returns an error if one of the servers keeps positions by file.
func withoutGTIDs(seen []candidate) error {
	i := slices.IndexFunc(seen, func(c candidate) bool { return errors.Is(c.err, errNoGTIDs) })
	if i < 0 {
		return nil
	}
	return seen[i].err
}

// mixed returns an error if one of the servers is MySQL and another MariaDB: neither will ever have what the other has.
func mixed(seen []candidate) error {
	var first *candidate
	for i := range seen {
		switch c := &seen[i]; {
		case c.err != nil:
		case first == nil:
			first = c
		case c.info.Flavor != first.info.Flavor:
			return fmt.Errorf("source.addresses: %s is %s, and %s is %s: servers of one source replicate from one another, so "+
				"leave out the one that does not belong to it, or say with source.flavor which do", first.address,
				first.info.Flavor, c.address, c.info.Flavor)
		}
	}
	return nil
}

// behind returns an error that waits for a server that answers and lacks something. One that takes writes is what
// applications fill the cache from already. So may a member of a group be, which lets them read as soon as it has
// become the primary, and is read only until it has applied all.
// Source: MySQL Reference Manual, "Transaction Consistency Guarantees": EVENTUAL was the default before 8.4. That it is
// read only: observed on 9.7.
func (l *loop) behind(seen []candidate, p *event.Position) error {
	var waits error
	for i := range seen {
		c := &seen[i]
		if c.err != nil || c.lacks.IsEmpty() || c.info.Server == p.Server {
			continue
		}
		behind := &behindError{c.info.Server, p.Server, c.lacks}
		if c.takesWrites() || c.eventual {
			return l.lags(behind)
		}
		waits = behind
	}
	if waits != nil && time.Since(l.reconnect.since) >= awayAfter {
		l.o.Alarms.Raise(alarm.SourceBehind, "source "+l.o.Source+": no server of source.addresses can be read that has "+
			"all that was read; "+waits.Error())
	}
	return waits
}

// words returns the addresses in a sentence.
func (s *Servers) words() string { return strings.Join(s.addresses, ", ") }
