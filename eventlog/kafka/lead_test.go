package kafka

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/freshet/freshet/eventlog/kafka/broker"
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
