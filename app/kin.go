package app

import (
	"context"
	"errors"
	"time"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/retry"
)

// lookAtKin is how often a reader that stands by compares its server with the checkpoint.
const lookAtKin = time.Minute

// watchKin looks, while this process does not lead, whether its source has the database that the checkpoint is of,
// until ctx ends. If it has another one, it returns a [*canal.ForeignError], once that is a doubt: it would stand by
// forever, and nobody reads what is changed there. A leader has compared before it went on from the checkpoint.
func (e *elected) watchKin(ctx context.Context) error {
	o, err := connect.Source(e.config)
	if err != nil {
		return err
	}
	o.Alarms, o.Logger = e.alarms, e.options.Log
	kin, err := canal.NewKin(o)
	if err != nil {
		return err
	}
	for {
		var err error
		if !e.leader.Leading() {
			err = kin.Compare(ctx, func(ctx context.Context) (event.Position, error) {
				v, err := leader.OpenCheckpoint(ctx, e.client, connect.Topics(e.config), e.config.Source.Name)
				if err != nil {
					return event.Position{}, err
				}
				return v.Position, v.Lost
			})
		}
		if foreign := (*canal.ForeignError)(nil); errors.As(err, &foreign) && !e.isGap(foreign) {
			if err := e.doubts.Record(ctx, foreign.Doubt()); err != nil {
				return nil // ctx has ended
			}
			return foreign
		}
		if err != nil && ctx.Err() == nil {
			e.options.Log.Debug("the source cannot be compared with its checkpoint for now", "source", e.config.Source.Name,
				"error", err)
		}
		if retry.Sleep(ctx, lookAtKin) != nil {
			return nil
		}
	}
}

// isGap reports whether what looks like another database is taken for the one of the checkpoint, whose binlog has begun
// again: it has the same identity, and the leader goes on after that.
func (e *elected) isGap(f *canal.ForeignError) bool {
	return f.Server == f.Was && e.config.OnGap == config.GapInvalidate
}
