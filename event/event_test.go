package event

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestVersionsOrderByEpochFilePositionRow(t *testing.T) {
	ordered := []Version{
		{},
		{Epoch: 1, File: 1, Pos: 4, Row: 0},
		{Epoch: 1, File: 1, Pos: 4, Row: 1},
		{Epoch: 1, File: 1, Pos: 5 << 30, Row: 1},
		{Epoch: 1, File: 2, Pos: 4, Row: 1},
		{Epoch: 2, File: 1, Pos: 4, Row: 1},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := a.Compare(b), cmpInt(i, j); got != want {
				t.Errorf("%s compared with %s: %d, want %d", a, b, got, want)
			}
		}
		back, err := ParseVersion(a.String())
		if err != nil || back != a {
			t.Errorf("%s came back as %s, %v", a, back, err)
		}
	}
	for _, bad := range []string{"", "1/2/3", "1/2/3/4/5", "1/2/3/x", "01/2/3/4", "1/2/3/4 "} {
		if v, err := ParseVersion(bad); err == nil {
			t.Errorf("ParseVersion(%q) = %s, want an error", bad, v)
		}
	}
}

func cmpInt(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestSetsPrintAsTheServersDo(t *testing.T) {
	const u = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	for _, c := range []struct {
		flavor   Flavor
		in, want string
	}{
		{MySQL, "", ""},
		{MySQL, u + ":1-5", u + ":1-5"},
		{MySQL, strings.ToUpper(u) + ":7:1-3:4-5", u + ":1-5:7"},
		{MySQL, u + ":1-3,\n" + u + ":4", u + ":1-4"},
		{MySQL, u + ":1-3:blue:1-2:9:red:4", u + ":1-3," + u + ":blue:1-2:9," + u + ":red:4"},
		{MariaDB, "0-1-5", "0-1-5"},
		{MariaDB, "1-2-7,0-1-5", "0-1-5,1-2-7"},
	} {
		s, err := ParseGTIDSet(c.flavor, c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
		}
		if got := s.String(); got != c.want {
			t.Errorf("%q prints as %q, want %q", c.in, got, c.want)
		}
	}
	for flavor, bad := range map[Flavor][]string{
		MySQL:   {"x", u, u + ":", u + ":0", u + ":5-4", u + ":1-2-3", u + ":1-x", "3e11:1", u + ":blue"},
		MariaDB: {"0-1", "0-1-0", "a-1-2", "0-1-2-3", "-1-1-1"},
	} {
		for _, in := range bad {
			if s, err := ParseGTIDSet(flavor, in); err == nil {
				t.Errorf("%s %q was read as %q, want an error", flavor, in, s.String())
			}
		}
	}
}

func TestASetOfGTIDsIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64Range(1, 40)
		gen := rapid.Custom(func(t *rapid.T) GTID {
			var g GTID
			g.UUID[0] = byte(rapid.IntRange(1, 2).Draw(t, "uuid"))
			g.Tag = rapid.SampledFrom([]string{"", "blue"}).Draw(t, "tag")
			g.Number = number.Draw(t, "number")
			return g
		})
		draw := func(name string) (GTIDSet, map[GTID]bool) {
			var s GTIDSet
			model := map[GTID]bool{}
			for _, g := range rapid.SliceOfN(gen, 0, 60).Draw(t, name) {
				s.Add(g)
				model[g] = true
			}
			return s, model
		}
		a, am := draw("a")
		b, bm := draw("b")
		back, err := ParseGTIDSet(MySQL, a.String())
		if err != nil || back.String() != a.String() {
			t.Fatalf("%q came back as %q, %v", a.String(), back.String(), err)
		}
		diff := a.Subtract(&b)
		union := a.Clone()
		union.Union(&b)
		run := GTIDRange{First: gen.Draw(t, "first")}
		run.Last = run.First.Number + rapid.Uint64Range(0, 5).Draw(t, "length")
		all := true
		for g := run.First; g.Number <= run.Last; g.Number++ {
			all = all && am[g]
		}
		if a.ContainsRange(run) != all {
			t.Fatalf("%s holds all of %v: %v, want %v", a.String(), run, !all, all)
		}
		for u := range 3 {
			for _, tag := range []string{"", "blue"} {
				for n := uint64(1); n <= 41; n++ {
					g := GTID{Tag: tag, Number: n}
					g.UUID[0] = byte(u)
					if u == 0 {
						continue
					}
					if a.Contains(g) != am[g] || diff.Contains(g) != (am[g] && !bm[g]) || union.Contains(g) != (am[g] || bm[g]) {
						t.Fatalf("%s: a %v, a-b %v, a|b %v; want %v, b %v", g, a.Contains(g), diff.Contains(g), union.Contains(g), am[g],
							bm[g])
					}
				}
			}
		}
	})
}

func TestAMariaDBSetIsTheLastGTIDOfEachDomain(t *testing.T) {
	s, _ := ParseGTIDSet(MariaDB, "0-1-5")
	s.Add(GTID{Domain: 0, Server: 2, Number: 6})
	s.Add(GTID{Domain: 3, Server: 1, Number: 1})
	if got := s.String(); got != "0-2-6,3-1-1" {
		t.Fatalf("got %s", got)
	}
	o, _ := ParseGTIDSet(MariaDB, "0-1-9")
	d := s.Subtract(&o)
	if got := d.String(); got != "3-1-1" {
		t.Fatalf("difference %s", got)
	}
	if !s.Contains(GTID{Domain: 0, Server: 9, Number: 4}) || s.Contains(GTID{Domain: 0, Server: 2, Number: 7}) ||
		s.Contains(GTID{Domain: 1, Number: 1}) {
		t.Fatal("a domain holds what its sequence has reached, and nothing else")
	}
}

func TestAPositionAdvancesOverWhatTheEndsOfItsTransactionsAddUpTo(t *testing.T) {
	u, err := ParseUUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000, 0)
	var sum End
	for _, n := range []uint64{11, 12, 13, 20} {
		var e End
		e.AddTx("binlog.000007", 100*n, GTID{UUID: u, Number: n}, at)
		sum.Add(e)
	}
	sum.Add(End{})
	if len(sum.GTIDs) != 2 {
		t.Fatalf("consecutive transactions are one run: %v", sum.GTIDs)
	}
	sum.Add(End{File: "binlog.000008", Pos: 4, State: []byte("s")})
	p := Position{Flavor: MySQL}
	p.GTIDs, _ = ParseGTIDSet(MySQL, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-10")
	p.Advance(sum)
	p.Advance(End{})
	if got, want := p.GTIDs.String(), "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-13:20"; got != want {
		t.Fatalf("GTIDs %s, want %s", got, want)
	}
	if p.File != "binlog.000008" || p.Pos != 4 || string(p.State) != "s" {
		t.Fatalf("position %s:%d state %q", p.File, p.Pos, p.State)
	}
}

func TestABatchKeepsItsKeysAndVersions(t *testing.T) {
	var b Batch
	b.Reset()
	var want []string
	for round := range 2 {
		b.AddOrigin(Origin{Table: "shop.product", Event: Version{Epoch: 1, File: 2, Pos: uint64(100 * (round + 1))}})
		for row := range uint32(3) {
			key := fmt.Sprintf("product:%d", int(row)+10*round)
			b.Add(append(b.Text(), key...), row+1, ActionDelete)
			want = append(want, key)
		}
	}
	c := b.Clone()
	b.Reset()
	b.AddOrigin(Origin{})
	b.Add(append(b.Text(), "XXXXXXXXXXXXXXXXXXXXXXXXXXXX"...), 1, ActionDelete)
	var got []string
	for i := range c.Len() {
		got = append(got, c.Key(i))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("a clone must not change with the batch that it was made of:\n%s", d)
	}
	if v := c.Version(4); v != (Version{Epoch: 1, File: 2, Pos: 200, Row: 2}) || c.Last != c.Version(5) {
		t.Fatalf("version of the fifth is %s, last is %s", v, c.Last)
	}
}

func TestAMarkCoversItsOwnAndEarlierTermsOnly(t *testing.T) {
	v := Version{Epoch: 1, File: 1, Pos: 10, Row: 1}
	m := Mark{Source: "s", Term: 3, Version: v}
	after := v
	after.Row++
	for _, c := range []struct {
		source string
		term   uint64
		v      Version
		want   bool
	}{{"s", 3, v, true}, {"s", 2, v, true}, {"s", 4, v, false}, {"t", 3, v, false}, {"s", 3, after, false}} {
		if got := m.Covers(c.source, c.term, c.v); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestValuesThatAreAbsentAreNeverTheSame(t *testing.T) {
	a := Value{Kind: Int, Num: 1, Raw: []byte{1}}
	b := Value{Kind: Int, Num: 2, Raw: []byte{2}}
	absent, null := Value{}, Value{Kind: Null}
	if !a.Same(&a) || a.Same(&b) || a.Same(&null) || !null.Same(&null) || absent.Same(&absent) {
		t.Fatal("Same is wrong")
	}
}

func TestSplitFile(t *testing.T) {
	for name, want := range map[string]string{
		"binlog.000112": "binlog 112", "mysql-bin.1000000": "mysql-bin 1000000", "a.b.000001": "a.b 1", ".7": " 7",
		"x.2147483647": "x 2147483647",
	} {
		if base, n, err := SplitFile(name); err != nil || fmt.Sprint(base, " ", n) != want {
			t.Errorf("%s: %q %d (%v)", name, base, n, err)
		}
	}
	for _, name := range []string{
		"", "binlog", "binlog.", "binlog.x1", "112", "binlog.-1", "binlog.+1", "binlog.1 ",
		"binlog.4294967296",
	} {
		if base, n, err := SplitFile(name); err == nil || base != "" || n != 0 ||
			!strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("%s: %q %d (%v)", name, base, n, err)
		}
	}
}

func FuzzParseGTIDSet(f *testing.F) {
	f.Add("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:blue:7")
	f.Add("0-1-5,1-2-3")
	f.Fuzz(func(t *testing.T, in string) {
		for _, flavor := range []Flavor{MySQL, MariaDB} {
			s, err := ParseGTIDSet(flavor, in)
			if err != nil {
				continue
			}
			for _, same := range []GTIDSet{s, s.Clone()} {
				if left := s.Subtract(&same); !left.IsEmpty() {
					t.Fatalf("%q lacks %s of itself", in, left.String())
				}
				s.Union(&same)
			}
			s.Each(func(r GTIDRange) {
				if !s.ContainsRange(r) || !s.Contains(r.First) {
					t.Fatalf("%q does not hold its own %v", in, r)
				}
			})
			again, err := ParseGTIDSet(flavor, s.String())
			if err != nil || again.String() != s.String() {
				t.Fatalf("%q printed as %q, which reads as %q, %v", in, s.String(), again.String(), err)
			}
		}
	})
}

// The numbers of MariaDB's transactions say nothing about another server's.
func TestASetKnowsWhichServerMadeItsLastTransactions(t *testing.T) {
	s, err := ParseGTIDSet(MariaDB, "0-1-10,7-2-5")
	if err != nil {
		t.Fatal(err)
	}
	for gtid, want := range map[string]bool{
		"0-1-10": true, "0-1-9": true, "0-1-11": false, "0-2-9": false, "8-1-1": false,
	} {
		one, err := ParseGTIDSet(MariaDB, gtid)
		if err != nil {
			t.Fatal(err)
		}
		one.Each(func(r GTIDRange) {
			if got := s.ContainsOf(r); got != want {
				t.Errorf("%s holds %s of its server: %v, want %v", s.String(), gtid, got, want)
			}
		})
	}
	for server, want := range map[uint32]string{1: "0-1-10", 2: "7-2-5", 3: ""} {
		if own := s.Of(server); own.String() != want {
			t.Errorf("of server %d: %q, want %q", server, own.String(), want)
		}
	}
}
