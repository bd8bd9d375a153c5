package event

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Flavor is the family of the source server.
type Flavor string

// The flavors.
const (
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
)

// GTID identifies one transaction.
//
// MySQL (uuid[:tag]:number): UUID, Tag and Number are set. MariaDB (domain-server-sequence): Domain, Server and
// Number are set, and UUID is zero. The zero GTID means that the transaction has none.
// Source: MySQL Reference Manual "GTID Format and Storage"; MariaDB Knowledge Base "Global Transaction ID".
type GTID struct {
	UUID           [16]byte
	Tag            string
	Domain, Server uint32
	Number         uint64
}

// IsZero reports whether g identifies no transaction.
func (g GTID) IsZero() bool { return g.Number == 0 }

func (g GTID) mysql() bool { return g.UUID != [16]byte{} }

// String returns the GTID as its server prints it, "" for the zero GTID.
func (g GTID) String() string {
	switch {
	case g.IsZero():
		return ""
	case !g.mysql():
		return fmt.Sprintf("%d-%d-%d", g.Domain, g.Server, g.Number)
	}
	return sidString(sid{g.UUID, g.Tag}) + ":" + strconv.FormatUint(g.Number, 10)
}

// GTIDRange is a run of consecutive GTIDs of one source: First.Number to Last, both included. On MariaDB a range
// means its last GTID, since a MariaDB position is one GTID for each domain.
type GTIDRange struct {
	First GTID
	Last  uint64
}

// GTIDSet is a set of executed transactions: for MySQL, intervals for each UUID and tag; for MariaDB, the last
// GTID of each domain. The zero value is the empty set. Not safe for concurrent use.
type GTIDSet struct {
	sids    map[sid][]interval
	domains map[uint32]GTID
}

type sid struct {
	uuid [16]byte
	tag  string
}

// interval is first to last, both included.
type interval struct{ first, last uint64 }

// Add adds one GTID. On MariaDB it replaces the domain's last one.
func (s *GTIDSet) Add(g GTID) { s.AddRange(GTIDRange{First: g, Last: g.Number}) }

// AddRange adds a run of GTIDs.
func (s *GTIDSet) AddRange(r GTIDRange) {
	if r.First.IsZero() {
		return
	}
	if !r.First.mysql() {
		if s.domains == nil {
			s.domains = map[uint32]GTID{}
		}
		g := r.First
		g.Number = r.Last
		s.domains[g.Domain] = g
		return
	}
	if s.sids == nil {
		s.sids = map[sid][]interval{}
	}
	k := sid{r.First.UUID, r.First.Tag}
	ivs := s.sids[k]
	// The usual case: the next number of a source, at the tail.
	if n := len(ivs); n > 0 && ivs[n-1].last+1 == r.First.Number {
		ivs[n-1].last = r.Last
		return
	}
	s.sids[k] = merge(ivs, interval{r.First.Number, r.Last})
}

// merge inserts v into sorted, disjoint intervals.
func merge(ivs []interval, v interval) []interval {
	i, _ := slices.BinarySearchFunc(ivs, v, func(a, b interval) int {
		if a.last+1 < b.first {
			return -1
		}
		return 1
	})
	j := i
	for j < len(ivs) && ivs[j].first <= v.last+1 {
		v.first = min(v.first, ivs[j].first)
		v.last = max(v.last, ivs[j].last)
		j++
	}
	return slices.Replace(ivs, i, j, v)
}

// Contains reports whether the set holds g. On MariaDB: whether the domain's sequence has reached it, which is
// only meaningful along one stream.
func (s *GTIDSet) Contains(g GTID) bool {
	if !g.mysql() {
		d, ok := s.domains[g.Domain]
		return ok && d.Number >= g.Number
	}
	ivs := s.sids[sid{g.UUID, g.Tag}]
	// Look from the tail: what is asked is nearly always recent.
	for i := len(ivs) - 1; i >= 0; i-- {
		if g.Number > ivs[i].last {
			return false
		}
		if g.Number >= ivs[i].first {
			return true
		}
	}
	return false
}

// ContainsRange reports whether the set holds every transaction of a run. On MariaDB: whether the domain's sequence
// has reached its last one.
func (s *GTIDSet) ContainsRange(r GTIDRange) bool {
	if !r.First.mysql() {
		last := r.First
		last.Number = r.Last
		return s.Contains(last)
	}
	ivs := s.sids[sid{r.First.UUID, r.First.Tag}]
	i := sort.Search(len(ivs), func(i int) bool { return ivs[i].last >= r.First.Number })
	return i < len(ivs) && ivs[i].first <= r.First.Number && r.Last <= ivs[i].last
}

// ContainsOf reports whether the set's last transaction in the domain of r is of the server of r as well, and no older.
// Unlike [GTIDSet.ContainsRange] it goes by no number that another server has given. It is for MariaDB.
func (s *GTIDSet) ContainsOf(r GTIDRange) bool {
	d, ok := s.domains[r.First.Domain]
	return ok && d.Server == r.First.Server && d.Number >= r.Last
}

// Of returns the transactions of the set that a server of MariaDB has made.
func (s *GTIDSet) Of(server uint32) (own GTIDSet) {
	for _, d := range s.domains {
		if d.Server == server {
			own.Add(d)
		}
	}
	return own
}

// IsEmpty reports whether the set holds nothing.
func (s *GTIDSet) IsEmpty() bool { return len(s.sids) == 0 && len(s.domains) == 0 }

// Clone returns an independent copy.
func (s *GTIDSet) Clone() GTIDSet {
	var c GTIDSet
	if s.sids != nil {
		c.sids = make(map[sid][]interval, len(s.sids))
		for k, v := range s.sids {
			c.sids[k] = slices.Clone(v)
		}
	}
	if s.domains != nil {
		c.domains = make(map[uint32]GTID, len(s.domains))
		for k, v := range s.domains {
			c.domains[k] = v
		}
	}
	return c
}

// Subtract returns what s holds and o does not. On MariaDB: the domains in which s is ahead of o.
func (s *GTIDSet) Subtract(o *GTIDSet) GTIDSet {
	var out GTIDSet
	for k, ivs := range s.sids {
		for _, v := range ivs {
			for _, gap := range minus(v, o.sids[k]) {
				out.AddRange(GTIDRange{First: GTID{UUID: k.uuid, Tag: k.tag, Number: gap.first}, Last: gap.last})
			}
		}
	}
	for d, g := range s.domains {
		if og, ok := o.domains[d]; !ok || og.Number < g.Number {
			out.Add(g)
		}
	}
	return out
}

// SharesOrigin reports whether both sets have transactions that the same server wrote first, whichever they are. On
// MariaDB: whether both have a last one of the same server in the same domain.
func (s *GTIDSet) SharesOrigin(o *GTIDSet) bool {
	for k := range s.sids {
		for other := range o.sids {
			if k.uuid == other.uuid {
				return true
			}
		}
	}
	for d, g := range s.domains {
		if other, ok := o.domains[d]; ok && other.Server == g.Server {
			return true
		}
	}
	return false
}

// minus returns the parts of v outside the sorted intervals ivs.
func minus(v interval, ivs []interval) []interval {
	var out []interval
	i := sort.Search(len(ivs), func(i int) bool { return ivs[i].last >= v.first })
	for _, o := range ivs[i:] {
		if o.first > v.last {
			break
		}
		if o.first > v.first {
			out = append(out, interval{v.first, o.first - 1})
		}
		if o.last >= v.last {
			return out
		}
		v.first = o.last + 1
	}
	return append(out, v)
}

// Union adds all of o to s. On MariaDB the higher sequence number of a domain wins.
func (s *GTIDSet) Union(o *GTIDSet) {
	for k, ivs := range o.sids {
		for _, v := range ivs {
			s.AddRange(GTIDRange{First: GTID{UUID: k.uuid, Tag: k.tag, Number: v.first}, Last: v.last})
		}
	}
	for d, g := range o.domains {
		if have, ok := s.domains[d]; !ok || have.Number < g.Number {
			s.Add(g)
		}
	}
}

// Each calls f for every UUID and tag with its intervals in order, sorted; for MariaDB for the last GTID of each
// domain. It is what an encoder needs.
func (s *GTIDSet) Each(f func(GTIDRange)) {
	for _, k := range s.sortedSIDs() {
		for _, v := range s.sids[k] {
			f(GTIDRange{First: GTID{UUID: k.uuid, Tag: k.tag, Number: v.first}, Last: v.last})
		}
	}
	for _, d := range s.sortedDomains() {
		g := s.domains[d]
		f(GTIDRange{First: g, Last: g.Number})
	}
}

func (s *GTIDSet) sortedSIDs() []sid {
	ks := make([]sid, 0, len(s.sids))
	for k := range s.sids {
		ks = append(ks, k)
	}
	slices.SortFunc(ks, func(a, b sid) int {
		if c := slices.Compare(a.uuid[:], b.uuid[:]); c != 0 {
			return c
		}
		return strings.Compare(a.tag, b.tag)
	})
	return ks
}

func (s *GTIDSet) sortedDomains() []uint32 {
	ds := make([]uint32, 0, len(s.domains))
	for d := range s.domains {
		ds = append(ds, d)
	}
	slices.Sort(ds)
	return ds
}

// String returns the set as its server prints it: uuid:1-5:7,uuid:tag:1-3 for MySQL, 0-1-5,1-1-7 for MariaDB.
func (s *GTIDSet) String() string {
	var parts []string
	for _, k := range s.sortedSIDs() {
		var b strings.Builder
		b.WriteString(sidString(k))
		for _, v := range s.sids[k] {
			fmt.Fprintf(&b, ":%d", v.first)
			if v.last != v.first {
				fmt.Fprintf(&b, "-%d", v.last)
			}
		}
		parts = append(parts, b.String())
	}
	for _, d := range s.sortedDomains() {
		parts = append(parts, s.domains[d].String())
	}
	return strings.Join(parts, ",")
}

func sidString(k sid) string {
	h := hex.EncodeToString(k.uuid[:])
	u := h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	if k.tag != "" {
		u += ":" + k.tag
	}
	return u
}

// ParseUUID reads a UUID with or without hyphens.
func ParseUUID(s string) ([16]byte, error) {
	var u [16]byte
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != 16 {
		return u, fmt.Errorf("uuid %q: want 32 hexadecimal digits", s)
	}
	copy(u[:], b)
	return u, nil
}

// ParseGTIDSet reads a set as the servers print it; white space is ignored and the empty string is the empty set. The
// UUID of zeros, which MySQL takes from SET gtid_next, is refused.
func ParseGTIDSet(f Flavor, text string) (GTIDSet, error) {
	var s GTIDSet
	for part := range strings.SplitSeq(text, ",") {
		part = strings.Join(strings.Fields(part), "")
		if part == "" {
			continue
		}
		var err error
		if f == MariaDB {
			err = s.parseDomain(part)
		} else {
			err = s.parseSID(part)
		}
		if err != nil {
			return GTIDSet{}, fmt.Errorf("gtid set %q: %w", text, err)
		}
	}
	return s, nil
}

func (s *GTIDSet) parseDomain(part string) error {
	f := strings.Split(part, "-")
	if len(f) != 3 {
		return fmt.Errorf("%q: want domain-server-sequence", part)
	}
	d, err1 := strconv.ParseUint(f[0], 10, 32)
	srv, err2 := strconv.ParseUint(f[1], 10, 32)
	n, err3 := strconv.ParseUint(f[2], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || n == 0 {
		return fmt.Errorf("%q: want domain-server-sequence", part)
	}
	s.Add(GTID{Domain: uint32(d), Server: uint32(srv), Number: n})
	return nil
}

func (s *GTIDSet) parseSID(part string) error {
	f := strings.Split(part, ":")
	u, err := ParseUUID(f[0])
	if err != nil {
		return err
	}
	if u == [16]byte{} { // MySQL takes it from SET gtid_next; here it says that a GTID is MariaDB's
		return fmt.Errorf("%q: the UUID of zeros is not supported", part)
	}
	tag, seen := "", false
	for _, w := range f[1:] {
		if w != "" && (w[0] < '0' || w[0] > '9') {
			tag = strings.ToLower(w)
			continue
		}
		lo, hi, ranged := strings.Cut(w, "-")
		first, err := strconv.ParseUint(lo, 10, 63)
		if err != nil || first == 0 {
			return fmt.Errorf("%q: %q is not an interval", part, w)
		}
		last := first
		if ranged {
			if last, err = strconv.ParseUint(hi, 10, 63); err != nil || last < first {
				return fmt.Errorf("%q: %q is not an interval", part, w)
			}
		}
		s.AddRange(GTIDRange{First: GTID{UUID: u, Tag: tag, Number: first}, Last: last})
		seen = true
	}
	if !seen {
		return fmt.Errorf("%q: want uuid:interval", part)
	}
	return nil
}
