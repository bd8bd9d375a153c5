package event

import "time"

// Origin is what the invalidations of one rows event under one mapping have in common.
type Origin struct {
	// Table is the source table, schema.table.
	Table string
	// Tx is the transaction.
	Tx Tx
	// Event is the version of the rows event: Row is 0 in it.
	Event Version
	// D is the mapping's second delete: the longest that a reader may take from reading the database to its write
	// taking effect in the cache. 0: one delete only.
	D time.Duration
	// Mapping is the ordinal of the mapping in the configuration: for counting, and, with the source's name, whom
	// RateLimit is for.
	Mapping int
	// RateLimit is the mapping's own: how many of its keys a second are sent for the first time; 0: no limit.
	RateLimit int
}

// Placed is an [Origin] as a batch keeps it: what a rows event has to itself. It has no pointers, since a transaction
// of one row has one to itself, and so has a key of many partitions: millions of them wait in memory, and the garbage
// collector need not look into any.
type Placed struct {
	Event Version
	// Number is that of the GTID, 0 if there is none.
	Number uint64
	// Committed is when the transaction committed: see [Placed.Time].
	Committed int64
	// Common indexes [Batch].Commons.
	Common uint32
}

// Time returns when the transaction committed, in UTC, to the microsecond; the zero time if that is not known.
func (p *Placed) Time() time.Time { return time.UnixMicro(p.Committed).UTC() }

// Common is the rest of an [Origin]: what most of a batch have in common.
type Common struct {
	Table     string
	D         time.Duration
	Mapping   int
	RateLimit int

	gtid GTID // of its Number is what Placed says
	xid  string
}

// GTID returns that of the transaction with the number.
func (c *Common) GTID(number uint64) GTID {
	g := c.gtid
	g.Number = number
	return g
}

// near is how many origins, and commons, are looked at for one that is there already: under several mappings they take
// turns.
const near = 16

// AddOrigin adds an origin; invalidations added from now on belong to it. Of its commit time, whole microseconds are
// kept.
func (b *Batch) AddOrigin(o Origin) {
	b.Origins = append(b.Origins, Placed{
		Event: o.Event, Number: o.Tx.GTID.Number, Committed: o.Tx.Committed.UnixMicro(), Common: b.common(&o),
	})
}

// FindOrigin returns which of the newest origins before the n-th is o, or -1: the same rows event under the same
// mapping comes back after another mapping's turn, and an origin for each key would take more memory than the keys.
func (b *Batch) FindOrigin(o *Origin, n int) int {
	committed := o.Tx.Committed.UnixMicro()
	for i := n - 1; i >= 0 && i >= n-near; i-- {
		p := &b.Origins[i]
		if p.Event == o.Event && p.Number == o.Tx.GTID.Number && p.Committed == committed && b.Commons[p.Common].of(o) {
			return i
		}
	}
	return -1
}

// common returns the ordinal of what an origin has in common with others, adding it if it is not there.
func (b *Batch) common(o *Origin) uint32 {
	n := len(b.Commons)
	for i := n - 1; i >= 0 && i >= n-near; i-- {
		if b.Commons[i].of(o) {
			return uint32(i)
		}
	}
	c := Common{Table: o.Table, D: o.D, Mapping: o.Mapping, RateLimit: o.RateLimit, gtid: o.Tx.GTID, xid: o.Tx.XID}
	c.gtid.Number = 0
	b.Commons = append(b.Commons, c)
	return uint32(n)
}

// of reports whether c is what o has in common with others.
func (c *Common) of(o *Origin) bool {
	g := &o.Tx.GTID
	return c.Mapping == o.Mapping && c.D == o.D && c.RateLimit == o.RateLimit && c.Table == o.Table && c.xid == o.Tx.XID &&
		c.gtid.UUID == g.UUID && c.gtid.Tag == g.Tag && c.gtid.Domain == g.Domain && c.gtid.Server == g.Server
}

// Origin returns an origin whole. It is made again at each call: [Batch.Of] has what most callers need.
func (b *Batch) Origin(n int) Origin {
	p := &b.Origins[n]
	c := &b.Commons[p.Common]
	return Origin{
		Table: c.Table, Tx: Tx{GTID: c.GTID(p.Number), Committed: p.Time(), XID: c.xid}, Event: p.Event,
		D: c.D, Mapping: c.Mapping, RateLimit: c.RateLimit,
	}
}

// Of returns what invalidation i has in common with others.
func (b *Batch) Of(i int) *Common { return &b.Commons[b.Origins[b.Invalidations[i].Origin].Common] }
