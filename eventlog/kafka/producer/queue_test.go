package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

func TestRecordsThatAreTooLargeAreSplit(t *testing.T) {
	f := newFake(2)
	f.largest = 2000
	r := run(t, f, Options{})
	var keys []string
	for n := range 1000 {
		keys = append(keys, fmt.Sprintf("product:%d", n))
	}
	all := []*event.Batch{batch(1, keys...), batch(2, keys...)}
	r.append(all...)
	r.flush()
	f.check(t, all...)
	for id := range f.data {
		if tries, n := f.attempts[fmt.Sprintf("%s/%d", names.Topic, id)], len(f.data[id]); tries > n+10 {
			t.Errorf("%d attempts for %d records: the limit is looked for too slowly", tries, n)
		}
	}
}

func TestAKeyThatIsTooLargeNamesItsTableAndTheSetting(t *testing.T) {
	f := newFake(1)
	f.largest = 2000
	r := run(t, f, Options{})
	secret := strings.Repeat("secret", 1000)
	r.append(batch(1, "a", "b", secret))
	err := r.wait()
	if !errors.Is(err, ErrTooLarge) || !errors.Is(err, kafka.MessageSizeTooLarge) {
		t.Fatalf("run: %v, want %v", err, ErrTooLarge)
	}
	for _, part := range []string{"shop.product", "max.message.bytes", names.Topic} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the key is in the error: %.200s", err)
	}
	for range r.Durable() {
		t.Error("what was not acknowledged is durable")
	}
}

// valued is a batch of rebuilds with the given values.
func valued(n int, values ...string) *event.Batch {
	b := part(n)
	b.AddOrigin(event.Origin{Table: "shop.user", Event: event.Version{Epoch: 1, File: 1, Pos: uint64(n)}})
	effect := &event.Effect{As: event.FormString, TTL: time.Hour}
	for i, value := range values {
		key := fmt.Sprintf("user:%d", i)
		b.AddItem(event.Item{
			Text: event.AppendField(append(b.Text(), key...), value), Key: len(key), Row: uint32(i + 1),
			Action: event.ActionRebuild, Intent: event.IntentPut, Effect: effect,
		})
	}
	b.End.AddTx("binlog.000001", uint64(n), event.GTID{Server: 1, Number: uint64(n)}, time.Unix(int64(n), 0))
	return b.Clone()
}

func xs(n int) string { return strings.Repeat("x", n) }

// intents returns the keys in the order in which they were produced, with the intent of each.
func (f *fakeKafka) intents(t *testing.T) (all []string) {
	t.Helper()
	for _, s := range f.data[0] {
		b, _, err := record.Parse(s.value)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Len() {
			all = append(all, b.Key(i)+" "+b.Invalidations[i].Intent.String())
		}
	}
	return all
}

// Nothing is held up by a value that no record can hold, and nothing of it is lost: its key is forgotten.
func TestAValueThatIsTooLargeIsForgotten(t *testing.T) {
	for _, c := range []struct {
		name            string
		largest, record int
	}{{"by its size", 0, 4000}, {"by what the brokers say", 4000, 0}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(1)
			f.largest = c.largest
			var said bytes.Buffer
			r := run(t, f, Options{MaxRecord: c.record, Log: slog.New(slog.NewTextHandler(&said, nil))})
			b := valued(1, xs(10), xs(1000), xs(9000), xs(500), xs(4100), xs(20))
			r.append(b)
			r.flush()
			f.check(t, b)
			want := []string{"user:0 put", "user:1 put", "user:2 forget", "user:3 put", "user:4 forget", "user:5 put"}
			if d := cmp.Diff(want, f.intents(t)); d != "" {
				t.Error(d)
			}
			if n := testutil.ToFloat64(r.metrics.forgotten); n != 2 {
				t.Errorf("%v counted", n)
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(said.String(), "forgotten instead of written"); n != 1 {
				t.Errorf("said %d times: %s", n, &said)
			}
		})
	}
}

func TestValuesCountAsBuffered(t *testing.T) {
	f := newFake(1)
	release := make(chan struct{})
	f.fate = func(_ string, _, attempt int) fate { return fate{until: release, applied: true} }
	r := run(t, f, Options{MaxBuffered: 1 << 20})
	r.append(valued(1, xs(500<<10), xs(500<<10)))
	if bytes, _ := r.ledger.usage(); bytes < 1000<<10 {
		t.Errorf("%d bytes are buffered", bytes)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Append(ctx, valued(2, xs(100<<10))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a full buffer takes more: %v", err)
	}
	close(release)
	r.flush()
}

// While a record is on its way the next one gathers: idle sends at once, busy sends big.
func TestRecordsGatherWhileOneIsOnItsWay(t *testing.T) {
	f := newFake(1)
	first, release := make(chan struct{}), make(chan struct{})
	f.fate = func(_ string, _, attempt int) fate {
		if attempt == 1 {
			close(first)
			return fate{until: release, applied: true}
		}
		return fate{applied: true}
	}
	r := run(t, f, Options{})
	all := []*event.Batch{batch(1, "k")}
	r.append(all...)
	<-first
	for n := range 100 {
		all = append(all, batch(n+2, "k", "l"))
		r.append(all[n+1])
	}
	close(release)
	r.flush()
	f.check(t, all...)
	if n := len(f.data[0]); n != 2 {
		t.Errorf("%d records, want the first batch alone and all others in one", n)
	}
}

func TestRecordsAreClosedAtTheirLimit(t *testing.T) {
	f := newFake(1)
	r := run(t, f, Options{MaxRecord: 4096})
	var keys []string
	for n := range 500 {
		keys = append(keys, fmt.Sprintf("product:%d", n))
	}
	b := batch(1, keys...)
	r.append(b)
	r.flush()
	f.check(t, b)
	for _, s := range f.data[0] {
		if len(s.value) > 4096+256 {
			t.Errorf("a record of %d bytes", len(s.value))
		}
	}
	if n := len(f.data[0]); n < 2 || n > 7 {
		t.Errorf("%d records", n)
	}
}

func TestTheAgeOfARecordIsThatOfItsYoungestBatch(t *testing.T) {
	for _, c := range []struct {
		name string
		ages []time.Duration
		want time.Duration
	}{
		// Handed over one second apart, encoded together after the last.
		{"all known", []time.Duration{10 * time.Second, 3 * time.Second, 2500 * time.Millisecond}, 2500 * time.Millisecond},
		{"they grow", []time.Duration{10 * time.Second, 0, 9 * time.Second}, time.Second},
		{"one unknown", []time.Duration{10 * time.Second, event.Unknown, 9 * time.Second}, event.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(1)
				release := make(chan struct{})
				f.fate = func(_ string, _, attempt int) fate {
					if attempt == 1 {
						return fate{until: release, applied: true}
					}
					return fate{applied: true}
				}
				r := run(t, f, Options{})
				r.append(batch(1, "k"))
				synctest.Wait()
				for i, age := range c.ages {
					time.Sleep(time.Second)
					b := batch(i+2, "k")
					b.Age = age
					r.append(b)
				}
				close(release)
				r.flush()
				if len(f.data[0]) != 2 {
					t.Fatalf("%d records", len(f.data[0]))
				}
				_, h, err := record.Parse(f.data[0][1].value)
				if err != nil || h.Age != c.want {
					t.Errorf("age %s, %v; want %s", h.Age, err, c.want)
				}
			})
		})
	}
}

// What is asked about a record later is kept with it: its encoder makes that of the next partition meanwhile.
func TestAnEncoderMakesOneRecordAfterTheOther(t *testing.T) {
	var enc record.Encoder
	var all []*sendQueue
	for id, b := range []*event.Batch{batch(1, "a", "b"), batch(2, "c"), valued(3, "x", "y", "z")} {
		s := &sendQueue{id: id, most: DefaultMaxRecord}
		s.push(piece{entry: &entry{}, batch: b, end: b.Len()})
		s.seal(&Options{Source: source, Term: 7}, &enc)
		if enc.Count() != 0 || enc.Len() != 0 {
			t.Errorf("record %d is still in the encoder", id)
		}
		all = append(all, s)
	}
	for i, want := range []struct {
		keys      string
		rows      int
		canForget bool
	}{{"a b", 2, false}, {"c", 1, false}, {"user:0 user:1 user:2", 3, true}} {
		r := all[i].sealed
		b, _, err := record.Parse(r.value)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for k := range b.Len() {
			keys = append(keys, b.Key(k))
		}
		if got := strings.Join(keys, " "); got != want.keys || r.rows != want.rows || r.canForget != want.canForget ||
			r.forgotten != 0 {
			t.Errorf("record %d: keys %s, %d rows, %t, %d", i, got, r.rows, r.canForget, r.forgotten)
		}
	}
}
