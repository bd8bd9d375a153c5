package letters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// parse reads records of a made-up form: "table key key …".
func parse(data []byte) (*event.Batch, error) {
	words := strings.Fields(string(data))
	if len(words) < 2 {
		return nil, errNoSense
	}
	b := &event.Batch{Source: "default"}
	b.AddOrigin(event.Origin{Table: words[0], Event: event.Version{Epoch: 1, File: 1, Pos: 7}, D: 2 * time.Second})
	for i, k := range words[1:] {
		b.Add(append(b.Text(), k...), uint32(i+1), event.ActionDelete)
	}
	return b, nil
}

// bury buries a record of the main topic.
func (r *rig) bury(s *Store, offset int64, value []byte) {
	r.Helper()
	rec := broker.Record{Offset: offset, Key: []byte("k\xff"), Value: value, Time: time.UnixMilli(5).UTC()}
	must(r, s.Bury(r.Context(), r.o.Topic, 3, rec, errNoSense))
}

func TestARecordThatCannotBeReadIsKeptWholeAndReplayed(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	s := r.store() // which can read none
	large := "shop.cart " + strings.Repeat(strings.Repeat("x", 50_000)+" ", 20) + "cart:\xff\x00last"
	for range 2 { // what is read again after a crash is the same letter
		r.bury(s, 4711, []byte("shop.cart cart:1 cart:2"))
		r.bury(s, 4712, []byte(large))
		r.bury(s, 4713, []byte("nonsense"))
		r.bury(s, 4714, nil)
	}
	all := s.all(t, retry.Filter{})
	if len(all) != 4 {
		t.Fatalf("%d letters, want 4", len(all))
	}
	want := fmt.Sprintf("record %s/3@4711 cannot be read: it makes no sense", r.o.Topic)
	if e := all[0]; e.Error != want || e.Key != "" || e.Table != "" || e.ID == 0 || e.Last.IsZero() {
		t.Errorf("listed as %+v", e)
	}
	var still *StillUnreadable
	if n, err := s.Replay(t.Context(), retry.Filter{}, time.Now()); n != 0 || !errors.As(err, &still) ||
		still.Letters != 4 || still.First != all[0].ID {
		t.Errorf("%d replayed by who can read none (%v)", n, err)
	}
	if got := s.all(t, retry.Filter{}); len(got) != 4 {
		t.Errorf("%d letters are left, want 4", len(got))
	}

	r.o.Parse = parse
	p := r.start()
	now := time.Now()
	n, err := p.Replay(t.Context(), retry.Filter{}, now)
	if n != 2 || !errors.As(err, &still) || still.Letters != 2 || !errors.Is(err, errNoSense) {
		t.Errorf("%d replayed (%v), want 2, and 2 to stay", n, err)
	}
	r.want("at once", p.due(now.Add(time.Second)))
	got := p.due(now.Add(2 * time.Second))
	r.want("after the second delete", got, "cart:1", "cart:2", strings.Repeat("x", 50_000), "cart:\xff\x00last")
	if e := got[1]; e.Table != "shop.cart" || e.D != 2*time.Second || e.Version.Row != 2 || e.Attempts != 0 {
		t.Errorf("parked as %+v", e)
	}
	if got := p.all(t, retry.Filter{}); len(got) != 2 || got[0].ID != all[2].ID {
		t.Errorf("%d letters are left, want 2", len(got))
	}
	if n, err := p.Purge(t.Context(), retry.Filter{}); n != 2 || err != nil {
		t.Errorf("%d purged (%v)", n, err)
	}
	// Nothing is left of any of them, parts included.
	last := map[string][]byte{}
	_, err = r.client.ReadAll(t.Context(), p.dead, 0, func(rec broker.Record) error {
		last[string(rec.Key)] = rec.Value
		return nil
	})
	must(t, err)
	for key, value := range last {
		if value != nil {
			t.Errorf("%s is left", key)
		}
	}
	if len(last) < 6 {
		t.Errorf("%d keys in all: the large one was not kept in parts", len(last))
	}
}

func TestWhatIsNoParkedKeyIsBuriedAndStopsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	topic := p.Topics()[1]
	good, err := encodeEntry(ptr(entry(1, time.Second)))
	must(t, err)
	newer := bytes.Replace(good, []byte(`"format":1`), []byte(`"format":2`), 1)
	_, err = r.client.Produce(t.Context(), topic, 0, broker.Record{Value: []byte("{")}, broker.Record{Value: good},
		broker.Record{Key: []byte("tombstone")}, broker.Record{Value: newer})
	must(t, err)
	got := p.due(ever())
	r.want("due", got, "user:1")
	must(t, p.Settle(t.Context(), ids(got), nil))
	if o := r.offset(topic); o != 4 {
		t.Errorf("%d is committed of 4", o)
	}
	dead := p.all(t, retry.Filter{})
	if len(dead) != 3 || !strings.Contains(dead[2].Error, topic+"/0@3 cannot be read: its format is 2") {
		t.Fatalf("%d letters, the last is %+v", len(dead), dead[len(dead)-1])
	}
	if got := r.alarms(); !slices.Equal(got, []alarm.Kind{alarm.RecordUnreadable}) {
		t.Errorf("the alarms are %v", got)
	}
	// The letter itself is replayed by a version that reads it: here by one whose letter says format 1.
	l := letter{key: []byte("x"), doc: &document{Record: &buried{Topic: topic, fragment: fragment{Value: good}}}}
	entries, err := p.readAgain(t.Context(), &l, time.Unix(9, 0))
	if err != nil || len(entries) != 1 || entries[0].Key != "user:1" || !entries[0].Due.Equal(time.Unix(9, 0)) {
		t.Errorf("replayed as %+v (%v)", entries, err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestALetterThatCannotBeReadIsListedAndPurged(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	s := r.store()
	_, err := r.client.Produce(t.Context(), s.dead, 0, broker.Record{Key: []byte("foreign/1"), Value: []byte("what?")})
	must(t, err)
	all := s.all(t, retry.Filter{})
	if len(all) != 1 || !strings.Contains(all[0].Error, "this dead letter cannot be read") {
		t.Fatalf("listed as %+v", all)
	}
	if n, err := s.Replay(t.Context(), retry.Filter{}, time.Now()); n != 0 || err == nil {
		t.Errorf("%d replayed (%v)", n, err)
	}
	if n, err := s.Purge(t.Context(), retry.Filter{}); n != 1 || err != nil {
		t.Errorf("%d purged (%v)", n, err)
	}
}

func TestThousandsOfLettersAreCountedListedReplayedAndPurged(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); p.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	const many = 5000
	var entries []retry.Entry
	for n := range many {
		e := entry(n, 0)
		if n%2 == 0 {
			e.Table = "shop.cart"
		}
		entries = append(entries, e)
	}
	for range 2 { // the second time, the acknowledgement of the first was lost
		r.park(p.Store, entries...)
	}
	p.wait(func() bool { return p.letters == many })
	var listed []retry.Entry
	for page := []retry.Entry(nil); ; {
		after := uint64(0)
		if len(listed) > 0 {
			after = listed[len(listed)-1].ID
		}
		var err error
		page, err = p.DeadLetters(t.Context(), retry.Filter{}, after, 999)
		must(t, err)
		listed = append(listed, page...)
		if len(page) < 999 {
			break
		}
	}
	for n, e := range listed {
		if e.Key != entries[n].Key {
			t.Fatalf("letter %d is of %s", n, e.Key)
		}
	}
	if len(listed) != many {
		t.Errorf("%d are listed", len(listed))
	}
	for i, want := range []int{many / 2, 0} {
		if n, err := p.Replay(t.Context(), retry.Filter{Table: "shop.cart"}, time.Now()); n != want || err != nil {
			t.Errorf("replay %d: %d (%v)", i, n, err)
		}
	}
	p.wait(func() bool { return p.letters == many/2 })
	p.wait(func() bool { return p.window(p.Topics()[0]).next == many/2 })
	if u, err := p.Held(); u.Parked != many/2 || u.DeadLetters != many/2 || err != nil {
		t.Errorf("the usage is %+v (%v)", u, err)
	}
	if n, err := p.Purge(t.Context(), retry.Filter{}); n != many/2 || err != nil {
		t.Errorf("%d purged (%v)", n, err)
	}
	p.wait(func() bool { return p.letters == 0 })
	r.want("left", p.all(t, retry.Filter{}))
}

// TestMoreLettersThanOneReadingFindsAreFoundInOrder reads the topic two letters at a time.
func TestMoreLettersThanOneReadingFindsAreFoundInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	s := r.store()
	var entries []retry.Entry
	for n := range 9 {
		entries = append(entries, entry(n, 0))
	}
	r.park(s, entries...)
	if n, err := s.Purge(t.Context(), retry.Filter{Key: "user:4"}); n != 1 || err != nil {
		t.Fatalf("%d purged (%v)", n, err)
	}
	r.park(s, entries[0], entries[2]) // written again: at a later offset
	var found []int64
	start, end := int64(0), r.end(s.dead)
	for rounds := 0; start < end; rounds++ {
		offsets, resume, err := s.live(t.Context(), start, end, 2)
		must(t, err)
		if len(offsets) > 2 || rounds > 10 || resume <= start {
			t.Fatalf("%v from %d on, then %d", offsets, start, resume)
		}
		found, start = append(found, offsets...), resume
	}
	if want := []int64{1, 3, 5, 6, 7, 8, 10, 11}; fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

func TestARecordIsKeptInPartsThatTheTopicTakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Parse: parse})
	r.o.Group += "small"
	s := r.store()
	r.kafka.Topic(t, s.dead, 1, "cleanup.policy=compact", "max.message.bytes=20000")
	for _, topic := range s.Topics() {
		r.kafka.Topic(t, topic, 1)
	}
	r.bury(s, 4711, []byte("shop.cart "+strings.Repeat("x", 500_000)))
	if n, err := s.Replay(t.Context(), retry.Filter{}, time.Now()); n != 1 || err != nil {
		t.Errorf("%d replayed, %v", n, err)
	}
}

func TestLettersThatAreLostWithTheirTopicAreADoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	if u, _ := p.Held(); u.Counted {
		t.Error("the letters are counted before anybody has read them")
	}
	go func() { defer close(ran); p.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	p.wait(func() bool { return p.counted })
	r.park(p.Store, entry(1, 0), entry(2, 0), entry(3, 0))
	p.wait(func() bool { return p.letters == 3 })
	if _, err := p.Purge(t.Context(), retry.Filter{IDs: []uint64{1}}); err != nil {
		t.Fatal(err)
	}
	p.wait(func() bool { return p.letters == 2 })
	if d := r.o.Doubts.List(); len(d) != 0 {
		t.Fatalf("a false doubt: %+v", d)
	}
	r.kafka.DeleteTopic(t, p.dead)
	r.kafka.Topic(t, p.dead, 1, "cleanup.policy=compact")
	p.wait(func() bool { return p.letters == 0 })
	d := r.o.Doubts.List()
	if len(d) != 1 || d[0].Cause != alarm.RecordsLost || d[0].Group != r.o.Group ||
		!strings.Contains(d[0].Message, "2 dead letters of group") {
		t.Fatalf("doubts: %+v", d)
	}
}
