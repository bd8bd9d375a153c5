package charset

import (
	"bytes"
	"compress/flate"
	_ "embed" // for the tables
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
)

//go:embed tables.bin
var packed []byte

type key struct {
	name   string
	flavor event.Flavor
}

// tables returns the character sets that have one. Each unpacks its own table when it is first used.
var tables = sync.OnceValue(func() map[key]*Charset {
	all, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		panic("charset: tables.bin: " + err.Error()) // a broken build
	}
	sets := map[key]*Charset{}
	u := unpacker(all)
	for len(u) > 0 {
		name, flavors, runs := u.str(), u.str(), u.str()
		t := &table{runs: runs}
		c := &Charset{name: name, max: int(runs[0]), convert: t.append}
		for f := range strings.SplitSeq(flavors, ",") {
			sets[key{name, event.Flavor(f)}] = c
		}
	}
	return sets
})

// unpacker reads what internal/generate wrote.
type unpacker []byte

func (u *unpacker) uvarint() int {
	v, n := binary.Uvarint(*u)
	*u = (*u)[n:]
	return int(v)
}

func (u *unpacker) varint() int {
	v, n := binary.Varint(*u)
	*u = (*u)[n:]
	return int(v)
}

func (u *unpacker) str() string {
	n := u.uvarint()
	s := string((*u)[:n])
	*u = (*u)[n:]
	return s
}

// What a table has for a sequence that is no code point.
const (
	illFormed  rune = -2
	unassigned rune = -1
)

// page is the last byte of a sequence.
type page [256]rune

// run is a stretch of consecutive sequences of four bytes, whose places are counted as in [place4].
type run struct {
	first, last int
	point       rune // of first; unassigned: of none of them
}

// table converts one character set.
type table struct {
	runs string
	once sync.Once

	single page
	double [256]*page // by the first byte
	triple [256]*page // by the second byte; the first is 8F
	quads  []run
}

func (t *table) unpack() {
	u := unpacker(t.runs)
	longest := u[0]
	u = u[1:]
	for i := range t.single {
		t.single[i] = illFormed
	}
	for n := range int(longest) {
		place, point := 0, 0
		for range u.uvarint() {
			place += u.uvarint()
			length := u.uvarint()
			r := run{first: place, last: place + length>>1 - 1, point: unassigned}
			if length&1 == 0 {
				point += u.varint()
				r.point = rune(point)
				point += length >> 1
			}
			place += length >> 1
			t.add(n+1, r)
		}
	}
}

// add adds a run of sequences of n bytes.
func (t *table) add(n int, r run) {
	if n == 4 {
		t.quads = append(t.quads, r)
		return
	}
	for place := r.first; place <= r.last; place++ {
		p := &t.single
		switch n {
		case 2:
			p = at(&t.double, place>>8)
		case 3:
			p = at(&t.triple, place>>8&0xff)
		}
		p[place&0xff] = r.point
		if r.point >= 0 {
			r.point++
		}
	}
}

func at(pages *[256]*page, i int) *page {
	if pages[i] == nil {
		pages[i] = new(page)
		for j := range pages[i] {
			pages[i][j] = illFormed
		}
	}
	return pages[i]
}

func (t *table) append(dst, src []byte) []byte {
	t.once.Do(t.unpack)
	for len(src) > 0 {
		r, n := t.decode(src)
		if r < 0 {
			r = '?'
		}
		dst = utf8.AppendRune(dst, r)
		src = src[n:]
	}
	return dst
}

// decode returns the code point that src begins with, or that there is none, and the length of its sequence. The
// longest goes first, since the servers take the beginning of a longer one for a character without a code point.
func (t *table) decode(src []byte) (rune, int) {
	c := src[0]
	if c < utf8.RuneSelf && t.single[c] >= 0 {
		return t.single[c], 1
	}
	if len(src) >= 4 && len(t.quads) > 0 {
		if r := t.quad(src); r != illFormed {
			return r, 4
		}
	}
	if len(src) >= 3 && c == 0x8f && t.triple[src[1]] != nil {
		if r := t.triple[src[1]][src[2]]; r != illFormed {
			return r, 3
		}
	}
	if len(src) >= 2 && t.double[c] != nil {
		if r := t.double[c][src[1]]; r != illFormed {
			return r, 2
		}
	}
	return t.single[c], 1
}

// quad looks up a sequence of four bytes of gb18030.
func (t *table) quad(src []byte) rune {
	place := place4(src)
	i, found := slices.BinarySearchFunc(t.quads, place, func(r run, place int) int {
		switch {
		case r.last < place:
			return -1
		case r.first > place:
			return 1
		}
		return 0
	})
	switch {
	case place < 0 || !found:
		return illFormed
	case t.quads[i].point < 0:
		return unassigned
	}
	return t.quads[i].point + rune(place-t.quads[i].first)
}

// place4 counts the sequences of four bytes before src: 81-FE, 30-39, 81-FE, 30-39. It is -1 if src is not one.
func place4(src []byte) int {
	a, b, c, d := int(src[0])-0x81, int(src[1])-0x30, int(src[2])-0x81, int(src[3])-0x30
	if a < 0 || a > 125 || b < 0 || b > 9 || c < 0 || c > 125 || d < 0 || d > 9 {
		return -1
	}
	return ((a*10+b)*126+c)*10 + d
}
