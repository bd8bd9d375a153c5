package producer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
