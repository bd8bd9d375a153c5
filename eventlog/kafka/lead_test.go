package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
)

func TestTheGroupHasFinishedWhatItHasCommitted(t *testing.T) {
	stopped := broker.Committed{Offset: 90, Metadata: "freshet1;lost,broken,gone"}
	left, lost := unfinished("t", "g", map[int]int64{0: 0, 1: 5, 2: 5, 3: 5, 4: 5}, map[int]broker.Committed{
		1: {Offset: 5}, 2: {Offset: 4}, 4: stopped,
	})
	if !slices.Equal(left, []int{2, 3, 4}) || len(lost) != 1 {
		t.Errorf("left are %v, stopped %v", left, lost)
	}
}

// hopping is a key that goes from one retry topic to the other and back, one step before each answer of the brokers.
type hopping struct {
	ends, finished map[topicPartition]int64
	steps, at      int
}

func (h *hopping) step() {
	if h.steps--; h.steps < 0 {
		return
	}
	from, to := topicPartition{"a", 0}, topicPartition{"b", 0}
	if h.at/2%2 == 1 {
		from, to = to, from
	}
	if h.at%2 == 0 {
		h.ends[to]++ // written there
	} else {
		h.finished[from]++ // and then finished here
	}
	h.at++
}

func TestAKeyThatGoesFromOneRetryTopicToAnotherIsParked(t *testing.T) {
	for steps := range 30 {
		for before := range 4 {
			h := &hopping{
				ends:     map[topicPartition]int64{{"a", 0}: 1, {"b", 0}: 0},
				finished: map[topicPartition]int64{{"a", 0}: 0, {"b", 0}: 0},
				steps:    steps + before,
			}
			for range before {
				h.step()
			}
			is, err := parked(func() (map[topicPartition]int64, error) {
				ends := map[topicPartition]int64{}
				for _, topic := range []string{"a", "b"} {
					h.step()
					ends[topicPartition{topic, 0}] = h.ends[topicPartition{topic, 0}]
				}
				return ends, nil
			}, func(at topicPartition) (int64, error) {
				h.step()
				return h.finished[at], nil
			})
			if !is || err != nil {
				t.Fatalf("after %d steps, and up to %d: %v, %v", before, steps, is, err)
			}
		}
	}
	none := map[topicPartition]int64{{"a", 0}: 5, {"b", 0}: 0}
	is, err := parked(func() (map[topicPartition]int64, error) { return none, nil },
		func(at topicPartition) (int64, error) { return none[at], nil })
	if is || err != nil {
		t.Errorf("all is finished: %v, %v", is, err)
	}
	failed := errors.New("away")
	if _, err := parked(func() (map[topicPartition]int64, error) { return nil, failed }, nil); !errors.Is(err, failed) {
		t.Error(err)
	}
}

func TestAPlaceIsReadBack(t *testing.T) {
	p := Place{Partitions: map[int]consumer.Reached{0: {Offset: 7, Seen: "freshet1"}, 11: {}}}
	text, err := json.Marshal(p)
	must(t, err)
	got, err := ParsePlace(text)
	must(t, err)
	if !maps.Equal(got.Partitions, p.Partitions) {
		t.Errorf("%s is read as %+v", text, got)
	}
	for _, none := range []string{
		"", "null", "{}", "garbage", `{"gtids":"x"}`, `{"partitions":null}`, "2026-01-31T08:00:00Z",
	} {
		if p, err := ParsePlace([]byte(none)); err == nil {
			t.Errorf("%q is read as %+v", none, p)
		}
	}
}

func TestWhatIsDoneForTheGroupEndsWithItsPartition(t *testing.T) {
	l := &Log{}
	served := errors.New("served")
	serve := func(context.Context) error { return served }
	if err := l.leading(t.Context(), serve); !errors.Is(err, served) {
		t.Error(err)
	}
	led := false
	l.Lead(func(ctx context.Context) error {
		<-ctx.Done()
		led = true
		return nil
	})
	if err := l.leading(t.Context(), serve); !errors.Is(err, served) || !led {
		t.Error(err, led)
	}
	failed := errors.New("failed")
	l.Lead(func(context.Context) error { return failed })
	err := l.leading(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
}

// What a process knows of its partitions it forgets with their contexts: the end of all would have to be asked of the
// brokers, which learn it with the next commit.
func TestAPartitionThatIsServedStaysOursUntilItIsTaken(t *testing.T) {
	l := &Log{}
	l.Lead(func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	assigned, revoke := context.WithCancel(t.Context())
	var served context.Context
	must(t, l.leading(assigned, func(ctx context.Context) error {
		served = ctx
		return nil
	}))
	if err := served.Err(); err != nil {
		t.Errorf("all of it is finished, and it is given up: %v", err)
	}
	revoke()
	if served.Err() == nil {
		t.Error("it is taken, and not given up")
	}
}
