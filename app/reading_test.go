package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/leader"
)

// A leader whose place another has taken cannot save, and need not: nobody should be woken for it.
func TestAPositionThatCannotBeSavedIsAnAlarmUnlessASuccessorSaves(t *testing.T) {
	alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{shared: &shared{config: &config.Config{}, alarms: alarms}}
	failed := r.saverOptions().Reporter.Failed
	failed(fmt.Errorf("save the position: %w", leader.ErrDeposed))
	if got := alarms.Records(); len(got) != 0 {
		t.Errorf("an alarm for a successor: %+v", got)
	}
	failed(errors.New("no space left"))
	if got := alarms.Records(); len(got) != 1 || got[0].Kind != alarm.StoreFailed {
		t.Errorf("alarms %+v", got)
	}
}

// A table that DDL is about to replace is missing for a moment; what stays missing counts.
func TestWhatDoesNotFitForAMomentIsNoDoubt(t *testing.T) {
	gone, passing := spec.Problem{What: "there is no table shop.old"}, spec.Problem{What: "there is no column price"}
	looks := func(each ...[]spec.Problem) (look func() ([]spec.Problem, error), taken *int) {
		n := 0
		return func() ([]spec.Problem, error) {
			n++
			return slices.Clone(each[min(n, len(each))-1]), nil
		}, &n
	}
	synctest.Test(t, func(t *testing.T) {
		look, taken := looks([]spec.Problem{gone, passing}, []spec.Problem{gone, passing}, []spec.Problem{gone})
		if found, err := lasting(t.Context(), false, look); err != nil || len(found) != 1 || found[0].What != gone.What ||
			*taken != fitLooks {
			t.Errorf("%v, %v after %d looks", found, err, *taken)
		}
		look, taken = looks([]spec.Problem{passing}, nil)
		if found, err := lasting(t.Context(), false, look); err != nil || len(found) != 0 || *taken != 2 {
			t.Errorf("%v, %v after %d looks", found, err, *taken)
		}
		look, taken = looks([]spec.Problem{gone})
		if found, _ := lasting(t.Context(), true, look); len(found) != 1 || *taken != 1 {
			t.Errorf("who waits for an answer: %v after %d looks", found, *taken)
		}
		first := true
		found, err := lasting(t.Context(), false, func() ([]spec.Problem, error) {
			if first {
				first = false
				return []spec.Problem{gone}, nil
			}
			return nil, errors.New("connection refused")
		})
		if err != nil || len(found) != 1 {
			t.Errorf("a source that goes away between the looks: %v, %v", found, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		look, _ = looks([]spec.Problem{gone})
		if found, err = lasting(ctx, false, look); err == nil || found != nil {
			t.Errorf("stopped meanwhile: %v, %v", found, err)
		}
	})
}

func TestWhoIsStoppedWhileItStartsHasNotFailed(t *testing.T) {
	text := "source: {addresses: ['127.0.0.1:1'], user: freshet}\nredis: {addresses: ['127.0.0.1:1']}\neventlog: {dir: " +
		t.TempDir() +
		"}\nadmin: {listen: none, metrics_listen: none}\nmappings: [{table: shop.product, keys: ['product:{id}']}]\n"
	c, err := config.Parse("freshet.yaml", []byte(text))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // what waits for its turn and for ctx takes either
		if _, err := Run(ctx, c, Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	}
}
