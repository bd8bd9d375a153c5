package consumer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// says is a record as the chain sees it.
type says struct {
	source    string
	term, seq uint64
	prev, pos int
}

func (s says) header() *record.Header {
	return &record.Header{Source: s.source, Term: s.term, Seq: s.seq, Prev: version(s.prev)}
}

// version is that of a place; place 0 is none.
func version(pos int) event.Version {
	if pos == 0 {
		return event.Version{}
	}
	return at(pos)
}

func TestAChainTellsWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []says // all but the last are fine
		missing bool   // before the last one
	}{
		{"the first record of a source may be any", []says{{"s", 4, 77, 500, 510}}, false},
		{"one after the other", []says{{"s", 1, 1, 0, 10}, {"s", 1, 2, 10, 20}}, false},
		{
			"a repeat after a lost acknowledgement",
			[]says{{"s", 1, 1, 0, 10}, {"s", 1, 2, 10, 20}, {"s", 1, 3, 20, 30}, {"s", 1, 2, 10, 20}},
			false,
		},
		{
			"and what follows the repeat",
			[]says{{"s", 1, 1, 0, 10}, {"s", 1, 2, 10, 20}, {"s", 1, 1, 0, 10}, {"s", 1, 2, 10, 20}, {"s", 1, 3, 20, 30}},
			false,
		},
		{"a hole", []says{{"s", 1, 1, 0, 10}, {"s", 1, 3, 20, 30}}, true},
		{"a new leader that knows of all", []says{{"s", 1, 8, 0, 80}, {"s", 2, 1, 80, 90}}, false},
		{"a new leader that goes back", []says{{"s", 1, 8, 0, 80}, {"s", 2, 1, 40, 50}}, false},
		{"a new leader that knows of what is not here", []says{{"s", 1, 8, 0, 80}, {"s", 2, 1, 90, 100}}, true},
		{"a new leader whose first record is missing", []says{{"s", 1, 8, 0, 80}, {"s", 2, 2, 80, 100}}, true},
		{"a leader that left no record here was between them", []says{{"s", 1, 8, 0, 80}, {"s", 3, 1, 80, 90}}, false},
		{"what an old leader left behind", []says{{"s", 2, 1, 0, 80}, {"s", 1, 900, 10, 20}}, false},
		{"it does not move the chain", []says{{"s", 2, 1, 0, 80}, {"s", 1, 900, 800, 900}, {"s", 2, 2, 80, 90}}, false},
		{"nor its highest version", []says{{"s", 2, 1, 0, 80}, {"s", 1, 900, 800, 900}, {"s", 3, 1, 900, 910}}, true},
		{"each source for itself", []says{
			{"s", 1, 1, 0, 10},
			{"t", 5, 9, 90, 100},
			{"s", 1, 2, 10, 20},
			{"t", 5, 10, 100, 110},
		}, false},
		{
			"the highest version counts, not the last",
			[]says{{"s", 1, 8, 0, 80}, {"s", 2, 1, 40, 50}, {"s", 3, 1, 80, 90}},
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ch chain
			for i, r := range c.records {
				// Each step goes through the metadata of a commit, as at a rebalance.
				ch = parseChain(ch.encode())
				l, moves, missing := ch.check(r.header(), at(r.pos))
				if want := c.missing && i == len(c.records)-1; (missing != nil) != want {
					t.Fatalf("record %d: missing %+v, want %v", i, missing, want)
				}
				if moves {
					ch.move(r.source, l)
				}
			}
		})
	}
}

func TestAChainThatIsWholeBeginsAtTheBeginning(t *testing.T) {
	for _, c := range []struct {
		first   says
		buried  int
		missing bool
	}{
		{says{"s", 9, 1, 0, 10}, 0, false},
		{says{"s", 9, 2, 0, 10}, 0, true},
		{says{"s", 9, 1, 5, 10}, 0, true},
		{says{"s", 9, 2, 5, 10}, 1, false},
		{says{"s", 9, 3, 5, 10}, 1, true},
	} {
		ch := chain{whole: true}
		ch.move("other", link{term: 1, seq: 1})
		ch.bury("other")
		ch.bury("")
		for range c.buried {
			ch.bury("s")
		}
		if _, _, missing := ch.check(c.first.header(), at(c.first.pos)); (missing != nil) != c.missing {
			t.Errorf("%d buried, then %+v: missing %+v", c.buried, c.first, missing)
		}
	}
}

func TestABuriedRecordMayHaveBeenTheMissingOne(t *testing.T) {
	for _, c := range []struct {
		buried  int
		next    says
		missing bool
	}{
		{1, says{"s", 1, 6, 50, 60}, false}, // it was another's
		{1, says{"s", 1, 7, 60, 70}, false},
		{1, says{"s", 1, 8, 70, 80}, true},
		{2, says{"s", 1, 8, 70, 80}, false},
		{1, says{"s", 2, 1, 60, 70}, false},
		{1, says{"s", 2, 2, 70, 80}, false},
		{1, says{"s", 2, 3, 80, 90}, true},
	} {
		var ch chain
		ch.move("s", link{term: 1, seq: 5, version: at(50)})
		ch.move("other", link{term: 1, seq: 5, version: at(50)})
		ch.bury("other")
		ch.bury("")
		for range c.buried {
			ch.bury("s")
		}
		ch = parseChain(ch.encode())
		l, _, missing := ch.check(c.next.header(), at(c.next.pos))
		if (missing != nil) != c.missing {
			t.Errorf("%d buried, then %+v: missing %+v", c.buried, c.next, missing)
		}
		if l.buried != 0 {
			t.Errorf("%+v: what was buried before it excuses a later hole", c.next)
		}
	}
}

func TestAChainComesBackFromItsMetadata(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c chain
		for range rapid.IntRange(0, 12).Draw(t, "moves") {
			c.move(rapid.StringOfN(rapid.Rune(), 0, 20, 40).Draw(t, "source"), link{
				term: rapid.Uint64().Draw(t, "term"), seq: rapid.Uint64().Draw(t, "seq"),
				version: event.Version{
					Epoch: rapid.Uint32().Draw(t, "epoch"), File: rapid.Uint32().Draw(t, "file"),
					Pos: rapid.Uint64().Draw(t, "pos"), Row: rapid.Uint32().Draw(t, "row"),
				},
				buried: rapid.Uint64Range(0, 3).Draw(t, "buried"),
			})
		}
		text := c.encode()
		back := parseChain(text)
		if again := back.encode(); again != text {
			t.Fatalf("%q came back as %q", text, again)
		}
		for s, l := range back.links {
			l.used = c.links[s].used
			if d := cmp.Diff(c.links[s], l, cmp.AllowUnexported(link{})); d != "" {
				t.Fatalf("%q: %s", s, d)
			}
		}
	})
}

func TestTheLeastRecentSourcesAreLeftOutOfTheMetadata(t *testing.T) {
	var c chain
	for i := range 1000 {
		c.move(fmt.Sprintf("source-with-a-long-name-%d", i), link{term: 1, seq: uint64(i), version: at(i)})
	}
	if len(c.links) != maxSources {
		t.Fatalf("%d sources are remembered", len(c.links))
	}
	text := c.encode()
	back := parseChain(text)
	if len(text) > maxMetadata || len(back.links) < 50 {
		t.Fatalf("%d bytes hold %d sources", len(text), len(back.links))
	}
	for i := range back.links {
		if !strings.HasPrefix(i, "source-with-a-long-name-9") {
			t.Fatalf("%s is remembered, and there are more recent ones", i)
		}
	}
}

func FuzzParseChain(f *testing.F) {
	for _, s := range []string{
		"", "freshet1", "freshet1;s,1,2,1/1/10/0", "freshet1;s,1,2,1/1/10/0,3;a%3Bb,4,5,0/0/0/0", "freshet2;s,1,2,1/1/10/0",
		"somebody's", "freshet1;s,1,2", "freshet1;%zz,1,2,1/1/10/0", "freshet1;s,-1,2,1/1/10/0;t,1,2,3",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := parseChain(s)
		text := c.encode()
		back := parseChain(text)
		if len(c.links) > maxSources || back.encode() != text {
			t.Fatalf("%q: %q, then %q", s, text, back.encode())
		}
	})
}

func TestOnlyARecordThatNamesItsSourceTwiceMayHaveBeenOurs(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"shop", `{"format":1,"source":"shop","te`, "shop"},
		{"shop", " \n{\"source\" : \"shop\", \"format\": true}", "shop"},
		{"shop", `{"format":1,"source":"other"}`, ""},
		{"shop", `shop`, ""},
		{"shop", `["shop"]`, ""},
		{"shop", ``, ""},
		{"", `{"source":""}`, ""},
		{"order-17", `{"id":17}`, ""},
	} {
		if got := suspect(&broker.Record{Key: []byte(c.key), Value: []byte(c.value)}); got != c.want {
			t.Errorf("%s %s: %q", c.key, c.value, got)
		}
	}
}
