package app

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/eventlog/kafka/leader"
)

// A leader whose place another has taken cannot save, and need not: nobody is to be woken for it.
func TestAPositionThatCannotBeSavedIsAnAlarmUnlessASuccessorSaves(t *testing.T) {
	alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{shared: &shared{config: &config.Config{}, alarms: alarms}}
	failed := r.saverOptions().Failed
	failed(fmt.Errorf("save the position: %w", leader.ErrDeposed))
	if got := alarms.Records(); len(got) != 0 {
		t.Errorf("an alarm for a successor: %+v", got)
	}
	failed(errors.New("no space left"))
	if got := alarms.Records(); len(got) != 1 || got[0].Kind != alarm.StoreFailed {
		t.Errorf("alarms %+v", got)
	}
}
