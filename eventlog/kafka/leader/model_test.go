package leader

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// The model: a topic, and leaders that follow the protocol of this package on it in any interleaving, with old leaders
// that do not know that they are, replies that are lost, requests that arrive late, and a compaction that may have got
// anywhere. A reader of the topic then goes on from no position that is behind one whose save has succeeded.
type model struct {
	log     []broker.Record // what was ever appended, at its offset
	gone    map[int64]bool  // what compaction has removed
	leaders []*modelLeader
	terms   map[uint64]string
	saved   uint64 // the highest position of a save that has succeeded
	late    []*modelRequest
}

type modelLeader struct {
	last    position
	next    int64
	seq     uint64
	deposed bool
	litter  []string // to be removed, whenever it gets to it
	found   []string // will be litter after its first save
}

type modelRequest struct {
	l *modelLeader
	p position
}

func (m *model) append(key string, value []byte) int64 {
	offset := int64(len(m.log))
	m.log = append(m.log, broker.Record{Offset: offset, Key: []byte(key), Value: value})
	return offset
}

func (m *model) write(t *rapid.T, p position) int64 {
	value, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return m.append(p.key(), value)
}

func (m *model) read(t *rapid.T) *snapshot {
	from := topic{source: "shop", least: func() uint64 { return 1 }} // what the clock says must not matter
	s := &snapshot{topic: from, live: map[string]kept{}, next: int64(len(m.log))}
	for _, r := range m.log {
		if m.gone[r.Offset] {
			continue
		}
		if err := s.add(r); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// claim takes a term, while others write between its reading and its writing.
func (m *model) claim(t *rapid.T) {
	s := m.read(t)
	p, err := s.newest()
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 3).Draw(t, "disturbed") == 0 {
		rapid.SampledFrom([]func(*rapid.T){m.claim, m.save, m.sweep, m.arrive}).Draw(t, "between")(t)
	}
	p = s.claimOf(p)
	offset := m.write(t, p)
	if offset != p.At || rapid.IntRange(0, 4).Draw(t, "reply") == 0 {
		return
	}
	if other, ok := m.terms[p.Term]; ok {
		t.Fatalf("term %d was taken by %s and %s", p.Term, other, p.Writer)
	}
	m.terms[p.Term] = p.Writer
	m.leaders = append(m.leaders, &modelLeader{last: p, next: offset + 1, found: s.litter(p.owner(), &p)})
}

// leading picks one that believes that it leads.
func (m *model) leading(t *rapid.T) *modelLeader {
	var all []*modelLeader
	for _, l := range m.leaders {
		if !l.deposed {
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(t, "leader")
}

func (m *model) save(t *rapid.T) {
	l := m.leading(t)
	if l == nil {
		return
	}
	l.seq++
	p := l.last
	p.Claim, p.At, p.Seq = false, 0, l.seq
	p.Pos += rapid.Uint64Range(1, 3).Draw(t, "progress")
	p.File = "binlog.000001"
	switch rapid.IntRange(0, 5).Draw(t, "fate") {
	case 0: // on its way for long
		m.late = append(m.late, &modelRequest{l, p})
		return
	case 1: // written, and the reply is lost
		m.write(t, p)
		return
	}
	offset := m.write(t, p)
	for _, r := range m.log[l.next:offset] {
		if _, o, ok := parseKey(string(r.Key)); ok && o.term > p.Term {
			l.deposed = true
			return
		}
	}
	l.next, l.last = offset+1, p
	l.litter, l.found = append(l.litter, l.found...), nil
	m.saved = max(m.saved, p.Pos)
}

// sweep removes what a leader may remove, also one that was deposed meanwhile.
func (m *model) sweep(t *rapid.T) {
	if len(m.leaders) == 0 {
		return
	}
	l := rapid.SampledFrom(m.leaders).Draw(t, "sweeper")
	for _, key := range l.litter {
		m.append(key, nil)
	}
	l.litter = nil
}

// arrive lets a late request arrive, unless that is so late that its key is in use again.
func (m *model) arrive(t *rapid.T) {
	if len(m.late) == 0 {
		return
	}
	r := m.late[0]
	m.late = m.late[1:]
	if r.l.seq < r.p.Seq+slots {
		m.write(t, r.p)
	}
}

// compact removes some records that have a later one with the same key, and some tombstones with nothing before them.
func (m *model) compact(t *rapid.T) {
	newest := map[string]int64{}
	for _, r := range m.log {
		newest[string(r.Key)] = r.Offset
	}
	before := map[string]bool{}
	for _, r := range m.log {
		key := string(r.Key)
		if m.gone[r.Offset] {
			continue
		}
		superseded := newest[key] != r.Offset
		if (superseded || r.Value == nil && !before[key]) && rapid.Bool().Draw(t, "removed") {
			m.gone[r.Offset] = true
			continue
		}
		before[key] = true
	}
}

func (m *model) check(t *rapid.T) {
	p, err := m.read(t).newest()
	if err != nil {
		t.Fatal(err)
	}
	if p.Pos < m.saved {
		t.Fatalf("who reads the topic goes on from %d in term %d; %d was saved", p.Pos, p.Term, m.saved)
	}
	for term := range m.terms {
		if term > p.Term {
			t.Fatalf("who reads the topic goes on from term %d; %d was taken", p.Term, term)
		}
	}
}

func TestNoSavedPositionIsLostWhateverTheInterleaving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{gone: map[int64]bool{}, terms: map[uint64]string{}}
		t.Repeat(map[string]func(*rapid.T){
			"claim": m.claim, "save": m.save, "save more": m.save, "sweep": m.sweep, "arrive": m.arrive, "compact": m.compact,
			"": m.check,
		})
	})
}
