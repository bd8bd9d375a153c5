package canal

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// IsGap reports whether an error of [Canal.Next] says that the source cannot be read on from the position: changes are
// gone, or cannot be read.
func IsGap(err error) bool {
	gap := (*GapError)(nil)
	return errors.As(err, &gap) || isDamage(err)
}

// isDamage reports whether an error says that the binlog cannot be read.
func isDamage(err error) bool {
	damaged := (*EventError)(nil)
	return errors.As(err, &damaged) || isDoubtful(err)
}

// move goes on at what everybody can read now, instead of from the position, under a new epoch: what is read from now
// on is newer than all that was read before.
//
// What was committed up to there was not read, or not all of it. That is a doubt about all keys, and durable before the
// new position is: a crash in between finds the gap once more. The oldest binlog that the source still has would save
// nothing, since all keys are forgotten anyway, and it may be the one that cannot be read.
func (l *loop) move(ctx context.Context, s *session, info *SourceInfo, from *event.Position) error {
	to, err := l.o.startPosition(ctx, s, info)
	if err != nil {
		return err
	}
	to.Epoch = firstEpoch()
	if from.Epoch > 0 {
		to.Epoch = from.Epoch + 1
	}
	at := event.VersionAt(to.Epoch, to.File, to.Pos)
	if err := l.o.Doubts.Record(l.ctx, doubt.Doubt{
		Cause: alarm.BinlogGap, Source: l.o.Source, At: at, Message: gapMessage(l.o.Source, l.gap, from, &to),
	}); err != nil {
		return l.stop(err)
	}
	if err := l.learn(ctx, info, &to); err != nil {
		return err
	}
	if err := l.checkpoint.Move(to); err != nil {
		return l.stop(err)
	}
	l.gap, l.moved = nil, event.End{Epoch: to.Epoch, File: to.File, Pos: to.Pos, Moved: true}
	l.o.Logger.Warn("the binlog has a gap: reading goes on at its end, and all keys of the mappings are in doubt", "source",
		l.o.Source, "from", from.String(), "position", to.String(), "epoch", to.Epoch)
	return l.beginAt(&to, info, false)
}

// gapMessage says what is in doubt after a gap.
func gapMessage(source string, why error, from, to *event.Position) string {
	reason := why.Error()
	gap, damaged := (*GapError)(nil), (*EventError)(nil)
	switch {
	case errors.As(why, &gap):
		reason = gap.Reason
	case errors.As(why, &damaged):
		reason = fmt.Sprintf("binlog %s:%d: %v", damaged.File, damaged.Pos, damaged.Err)
	}
	return "the binlog of source " + source + " has a gap after " + shortened(from.String()) + ": " + reason +
		"; reading went on at " + shortened(to.String()) + ". Changes committed between were not read, so any key of the " +
		"mappings may be stale: all of them are forgotten"
}

// shortened bounds a list of transactions in a message.
func shortened(list string) string {
	if len(list) > maxMissing {
		return list[:maxMissing] + "…"
	}
	return list
}

// sayMoved makes the step that says where reading goes on.
func (l *loop) sayMoved() (err error) {
	end := l.moved
	if end.State, err = l.newState(); err != nil {
		return err
	}
	l.moved = event.End{}
	l.step.Kind, l.step.End = Moved, end
	return nil
}
