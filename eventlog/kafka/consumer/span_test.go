package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// put appends documents to a partition of a fake.
func (f *fake) put(partition int, documents ...[]byte) {
	f.change(func() {
		for _, d := range documents {
			l := f.logs[partition]
			f.logs[partition] = append(l, broker.Record{Offset: int64(len(l)), Key: []byte("s"), Value: d})
		}
	})
}

// readAgain reads a span to its end, and returns the keys.
func readAgain(t *testing.T, s *Span) (keys []string, err error) {
	t.Helper()
	for {
		b, err := s.Next(t.Context())
		if err != nil {
			return keys, err
		}
		if !b.Leftover {
			t.Error("a batch that is read again is no leftover")
		}
		keys = append(keys, b.Key(0))
	}
}

// chained are the records from seq to last of source s, term 1.
func chained(seq, last int) (all [][]byte) {
	for ; seq <= last; seq++ {
		all = append(all, document("s", 1, uint64(seq), 10*(seq-1), 10*seq))
	}
	return all
}

func keysOf(seq, last int) (keys []string) {
	for ; seq <= last; seq++ {
		keys = append(keys, fmt.Sprintf("s:1:%d", seq))
	}
	return keys
}

func TestASpanIsReadAgainWhereverSomebodyHadStopped(t *testing.T) {
	f := newFake(0)
	f.put(0, chained(1, 9)...)
	for from := range 10 {
		s := newSpan(f, "t", 0, Reached{}, 9)
		for range from {
			_, err := s.Next(t.Context())
			must(t, err)
		}
		rest := newSpan(f, "t", 0, s.Reached(), 8) // the last record came later
		keys, err := readAgain(t, rest)
		if from == 9 {
			if !errors.Is(err, ErrGone) {
				t.Errorf("beyond its end: %v", err)
			}
			continue
		}
		if err != io.EOF || !slices.Equal(keys, keysOf(from+1, 8)) {
			t.Errorf("from %d on: %v, %v", from, keys, err)
		}
		if r := rest.Reached(); r.Offset != 8 || rest.Left() != 0 {
			t.Errorf("from %d on: it ends at %+v", from, r)
		}
	}
}

func TestASpanOfWhichSomethingIsGoneIsNotPassedOver(t *testing.T) {
	whole := newFake(0)
	whole.put(0, chained(1, 2)...)
	two := newSpan(whole, "t", 0, Reached{}, 2)
	_, err := readAgain(t, two)
	if err != io.EOF {
		t.Fatal(err)
	}
	seen := two.Reached()
	for name, c := range map[string]struct {
		log  [][]byte
		from Reached
		err  error
		want string
	}{
		"nothing is":                     {chained(1, 4), seen, nil, ""},
		"a record is missing":            {append(chained(1, 2), chained(4, 5)...), seen, nil, "goes on with record 4 of term 1"},
		"the topic was created again":    {chained(3, 9), seen, nil, "goes on with record 5 of term 1"},
		"it was, and held nothing of it": {chained(3, 9), Reached{}, nil, "the log never held anything of it before"},
		"it was, and is shorter":         {chained(3, 3), seen, nil, "ends at offset 1, before 2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(0)
			f.put(0, c.log...)
			keys, err := readAgain(t, newSpan(f, "t", 0, c.from, int64(len(c.log))))
			if c.want == "" {
				if err != io.EOF || !slices.Equal(keys, keysOf(3, 4)) {
					t.Errorf("%v, %v", keys, err)
				}
				return
			}
			if !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// Brokers that are away, or that do not know yet what they have, have lost nothing.
func TestASpanGoesOnWhenTheBrokersAreBack(t *testing.T) {
	f := newFake(0)
	f.put(0, chained(1, 3)...)
	s := newSpan(f, "t", 0, Reached{}, 4)
	for _, err := range []error{errors.New("away"), kafka.OffsetOutOfRange} {
		f.change(func() { f.errs[0] = err })
		if _, got := s.Next(t.Context()); !errors.Is(got, err) || errors.Is(got, ErrGone) {
			t.Errorf("%v: %v", err, got)
		}
	}
	f.change(func() { delete(f.errs, 0) })
	keys, err := readAgain(t, s)
	if broker.Classify(err) != broker.Transient || !slices.Equal(keys, keysOf(1, 3)) {
		t.Errorf("before the replicas have all: %v, %v", keys, err)
	}
	f.put(0, chained(4, 4)...)
	if keys, err = readAgain(t, s); err != io.EOF || !slices.Equal(keys, keysOf(4, 4)) {
		t.Errorf("%v, %v", keys, err)
	}
}

// What nobody could read is among the dead letters; what only a newer freshet can read must not be passed over.
func TestRecordsOfASpanThatCannotBeRead(t *testing.T) {
	f := newFake(0)
	f.put(0, chained(1, 1)...)
	f.put(0, []byte(`{"format":1,"source":"s"}`))
	f.put(0, chained(3, 3)...)
	keys, err := readAgain(t, newSpan(f, "t", 0, Reached{}, 3))
	if want := []string{"s:1:1", "s:1:3"}; err != io.EOF || !slices.Equal(keys, want) {
		t.Errorf("%v, %v", keys, err)
	}
	f.put(0, []byte(`{"format":99}`))
	s := newSpan(f, "t", 0, Reached{Offset: 3, Seen: "freshet1"}, 4)
	for range 2 {
		if _, err := s.Next(t.Context()); err == nil || errors.Is(err, io.EOF) || errors.Is(err, ErrGone) ||
			!strings.Contains(err.Error(), "upgrade the invalidators") {
			t.Errorf("%v", err)
		}
	}
}

// By the clock of a real broker.
func TestWhereTheRecordsSinceATimeBegin(t *testing.T) {
	r := newRig(t, 1, "message.timestamp.type=LogAppendTime", "retention.ms=3600000")
	since := func(at time.Time) (int64, error) {
		t.Helper()
		from, err := Since(context.Background(), r.client, r.names.Topic, 0, at)
		return from.Offset, err
	}
	is := func(what string, at time.Time, want int64) {
		t.Helper()
		if got, err := since(at); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", what, got, err, want)
		}
	}
	start := time.Now().Add(-time.Minute)
	is("of an empty partition", start, 0)
	r.series(0, 1, 3)
	written := func(offset int64) time.Time {
		f, err := r.client.Fetch(t.Context(), r.names.Topic, 0, offset, 1<<20, time.Second)
		must(t, err)
		return f.Records[0].Time
	}
	third := written(2)
	eventually(t, "time passes by the broker's clock", func() bool {
		r.produce(0, document("s", 2, 1, 30, 40))
		_, end, err := r.client.Range(t.Context(), r.names.Topic, 0)
		must(t, err)
		return written(end - 1).After(third)
	})
	is("from before all", start, 0)
	_, end, err := r.client.Range(t.Context(), r.names.Topic, 0)
	must(t, err)
	is("after all", time.Now().Add(time.Minute), end)
	if got, err := since(third.Add(time.Millisecond)); err != nil || got < 3 {
		t.Errorf("after the third: %d, %v", got, err)
	}
	must(t, r.client.Trim(t.Context(), r.names.Topic, 0, 3))
	is("what is left is within the retention", start, 3)
	if _, err := since(time.Now().Add(-2 * time.Hour)); !errors.Is(err, ErrGone) {
		t.Errorf("from before the retention: %v", err)
	}
}
