package canal

import (
	"context"
	"errors"
	"testing"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/proof/testbed"
)

// How a doubt ended cannot be read for a while: that is no dismissal.
func TestAnEarlyAnswerOfWhichNothingCanBeReadIsNotTheLast(t *testing.T) {
	t.Parallel()
	kept := &doubttest.Memory{}
	book, err := doubt.New(kept, newBoard(t, quietLogger(t)), nil)
	testbed.Must(t, err)
	book.Share(kept, "")
	testbed.Must(t, book.Load(t.Context()))
	o := &Options{Doubts: book}
	d := doubt.Doubt{Cause: alarm.ServerBehind, Source: "s", Subject: "server"}
	testbed.Must(t, book.Record(t.Context(), d))
	var p postponed
	p.add(d)
	there := book.List()[0]
	testbed.Must(t, book.Answered(t.Context(), there.ID, there.Last, "forgotten"))
	kept.Fail = func(context.Context, string, string) error { return errors.New("away") }
	testbed.Must(t, p.keep(t.Context(), o))
	kept.Fail = nil
	testbed.Must(t, p.keep(t.Context(), o))
	if !isIn(book.List(), there.ID) {
		t.Error("it was answered too early, and is not in doubt again")
	}
}
