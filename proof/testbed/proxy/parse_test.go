package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCommandKeysAreFound(t *testing.T) {
	for _, c := range []struct {
		line   string
		keys   string
		writes bool
	}{
		{"UNLINK a b c", "a b c", true},
		{"DEL a", "a", true},
		{"MSET a 1 b 2", "a b", true},
		{"EVALSHA abc 2 a b 1 2", "a b", true},
		{"EVAL x 0", "", true},
		{"EVAL x 9 a", "", false},
		{"SET a 1 PX 5", "a", true},
		{"PUBLISH news x", "news", true},
		{"XADD s * f v", "s", true},
		{"GET a", "a", false},
		{"MGET a b", "a b", false},
		{"PING", "", false},
		{"HELLO 3 AUTH u p", "", false},
		{"CLIENT SETINFO lib-name x", "", false},
		{"INCR", "", false},
	} {
		words := bytes.Fields([]byte(c.line))
		keys, writes := commandKeys(string(words[0]), words)
		if got := strings.Join(keys, " "); got != c.keys || writes != c.writes {
			t.Errorf("%s: keys %q, writes %v; want %q, %v", c.line, got, writes, c.keys, c.writes)
		}
	}
}

func TestRepliesAreCutAtTheirEnd(t *testing.T) {
	for _, c := range []struct {
		wire string
		want reply
	}{
		{"+OK\r\n", reply{kind: '+', text: "OK"}},
		{"-ERR no\r\n", reply{kind: '-', text: "ERR no"}},
		{"!6\r\nERR no\r\n", reply{kind: '!', text: "ERR no"}},
		{":-12\r\n", reply{kind: ':'}},
		{"$5\r\na\r\nbc\r\n", reply{kind: '$'}},
		{"$0\r\n\r\n", reply{kind: '$'}},
		{"$-1\r\n", reply{kind: '$', null: true}},
		{"_\r\n", reply{kind: '_', null: true}},
		{"*-1\r\n", reply{kind: '*', null: true}},
		{"*2\r\n:1\r\n-ERR x\r\n", reply{kind: '*', elems: []string{"", "ERR x"}}},
		{"%1\r\n+a\r\n*1\r\n:1\r\n", reply{kind: '%', elems: []string{"", ""}}},
		{"~1\r\n,1.5\r\n", reply{kind: '~', elems: []string{""}}},
		{">2\r\n+message\r\n=7\r\ntxt:abc\r\n", reply{kind: '>', push: true, elems: []string{"", ""}}},
		{"|1\r\n+ttl\r\n:5\r\n#t\r\n", reply{kind: '#'}},
		{"(12345678901234567890\r\n", reply{kind: '('}},
	} {
		for cut := range len(c.wire) {
			if _, n, err := parseReply([]byte(c.wire[:cut]), true); n != 0 || err != nil {
				t.Errorf("%q cut at %d: length %d, %v", c.wire, cut, n, err)
			}
		}
		got, n, err := parseReply([]byte(c.wire+"+next\r\n"), true)
		if err != nil || n != len(c.wire) {
			t.Errorf("%q: length %d, %v", c.wire, n, err)
		}
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(reply{})); d != "" {
			t.Errorf("%q: %s", c.wire, d)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n|1\r\n+a\r\n+b\r\n>0\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, n, err := parseReply(b, true); n < 0 || n > len(b) || err != nil && n != 0 {
			t.Fatalf("length %d of %d, %v", n, len(b), err)
		}
	})
}

func FuzzParseCommand(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\na\r\n"))
	f.Add([]byte("PING\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		words, n, err := parseCommand(b, nil)
		if n < 0 || n > len(b) || err != nil && n != 0 {
			t.Fatalf("length %d of %d, %v", n, len(b), err)
		}
		if n == 0 || len(words) == 0 {
			return
		}
		keys, _ := commandKeys(strings.ToUpper(string(words[0])), words)
		for _, k := range keys {
			if !slices.ContainsFunc(words, func(w []byte) bool { return string(w) == k }) {
				t.Fatalf("key %q is none of the words %q", k, words)
			}
		}
	})
}

func TestPacketsAreFoundHoweverTheBytesArrive(t *testing.T) {
	const limit = 300
	sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, limit), rapid.Just(limit)), 1, 6)
	rapid.Check(t, func(t *rapid.T) {
		var wire []byte
		var want []string
		continued := false
		for i, size := range sizes.Draw(t, "sizes") {
			start := len(wire)
			wire = append(wire, byte(size), byte(size>>8), byte(size>>16), byte(i))
			wire = append(wire, make([]byte, size)...)
			if size > 0 {
				wire[start+packetHeader] = byte(i + 1)
			}
			if !continued {
				want = append(want, fmt.Sprint(size, wire[start+packetHeader:start+packetHeader+min(size, 22)]))
			}
			continued = size == limit
		}
		f := framer{limit: limit}
		var got []string
		passed := 0
		for rest := wire; len(rest) > 0; {
			n := min(len(rest), rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(1, 2000)).Draw(t, "piece"))
			b := slices.Clone(rest[:n])
			rest = rest[n:]
			for len(b) > 0 {
				piece, remaining, first := f.take(b, 22)
				b = remaining
				passed += len(piece)
				if first {
					size := int(piece[0]) | int(piece[1])<<8 | int(piece[2])<<16
					got = append(got, fmt.Sprint(size, piece[packetHeader:packetHeader+min(size, 22)]))
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		if passed != len(wire) {
			t.Fatalf("%d bytes passed, want %d", passed, len(wire))
		}
	})
}

func TestSemiSyncBytesAreSkipped(t *testing.T) {
	event := append([]byte{1, 0, 0, 0, 16}, make([]byte, 20)...)
	c := &binlogConn{}
	c.request(0, append([]byte{comQuery}, "SET @rpl_semi_sync_replica = 1"...))
	if e, ok := c.event(append([]byte{0, 0xef, 0}, event...)); !ok || e.Type != 16 {
		t.Fatalf("got %+v, %v", e, ok)
	}
	if _, ok := c.event([]byte{0xff, 1, 2}); ok {
		t.Fatal("an error packet counts as an event")
	}
}
