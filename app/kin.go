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
	"github.com/freshet/freshet/router"
)

// lookAtKin is how often a reader that stands by compares its server with the checkpoint.
const lookAtKin = time.Minute

// watchKin looks, while this process does not lead, whether its source has the database that the checkpoint is of,
// until ctx ends. If it has another one, it returns a [*canal.ForeignError], once that is a doubt: it would stand by
// forever, and nobody reads what is changed there. A leader has compared before it went on from the checkpoint.
func (e *elected) watchKin(ctx context.Context) error {
	route, err := router.New(e.config.Mappings, router.Options{})
	if err != nil {
		return err
	}
	o := e.source()
	connect.Routed(&o, route)
	o.Alarms, o.Logger = e.alarms, e.options.Log
	kin, err := canal.NewKin(o)
	if err != nil {
		return err
	}
	seen := sameServer{passes: e.config.OnGap == config.GapInvalidate}
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
		if foreign := (*canal.ForeignError)(nil); errors.As(err, &foreign) && !seen.isGap(foreign) {
			if err := e.doubts.Record(ctx, foreign.Doubt()); err != nil {
				return nil // ctx has ended
			}
			return foreign
		}
		if err == nil {
			seen.looks = 0
		} else if ctx.Err() == nil {
			e.options.Log.Debug("the source cannot be compared with its checkpoint for now", "source", e.config.Source.Name,
				"error", err)
		}
		if retry.Sleep(ctx, lookAtKin) != nil {
			return nil
		}
	}
}

// sameServer tells a gap from another database. What has the identity of the checkpoint's server, and another binlog,
// is that server after its binlog began again, and where gaps are passed, the leader goes on after that. But two
// databases may have the same identity, on MariaDB by default. Then it stays so.
type sameServer struct {
	passes bool // gaps are passed
	looks  int  // that found it so, one after the other
}

// gapLooks is how many looks may find it so before it is another database. A leader passes a gap within a minute.
const gapLooks = 5

func (s *sameServer) isGap(f *canal.ForeignError) bool {
	if !s.passes || f.Server != f.Was {
		return false
	}
	s.looks++
	return s.looks < gapLooks
}
