package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/retry"
)

// leadOn is [leader.Leader.Run]. Where gaps are passed, a term that ends because the topic has lost records, as when it
// was made again, is followed by another. It goes on from the checkpoint: what the topic had not acknowledged is read
// again. What it had acknowledged, and a group had not read, is gone. So all keys are in doubt, which is durable before
// the term ends, since a standby may take over at once.
func (e *elected) leadOn(ctx context.Context, read func(context.Context, *leader.Checkpoint) error) error {
	pause := retry.Backoff{Min: gapPause, Max: longestGapPause}
	for {
		began := time.Now()
		var lost error
		err := e.leader.Run(ctx, func(term context.Context, cp *leader.Checkpoint) error {
			lost = nil // that was another term
			err := read(term, cp)
			if e.config.OnGap != config.GapInvalidate || !errors.Is(err, producer.ErrTopicChanged) {
				return err
			}
			e.options.Log.Warn("the topic of invalidations has lost records", "source", e.config.Source.Name, "error", err)
			if err := e.doubts.Record(ctx, e.remade()); err != nil {
				return failure(ctx, err)
			}
			lost = err
			return err
		})
		if lost == nil || ctx.Err() != nil {
			return failure(ctx, err)
		}
		if time.Since(began) >= gapLasts {
			pause.Reset()
		}
		if retry.Sleep(ctx, pause.Next()) != nil {
			return nil
		}
	}
}

// remade is the doubt about all that the topic held of the source.
func (e *elected) remade() doubt.Doubt {
	source, topic := e.config.Source.Name, e.config.EventLog.Kafka.Topic
	return doubt.Doubt{
		Cause: alarm.RecordsLost, Source: source, Subject: topic,
		Message: fmt.Sprintf("topic %s has lost records that source %s had written to it: it was deleted and made again, or "+
			"brokers without its end took it over. The source is read on from the checkpoint, as on_gap says; keys of what no "+
			"invalidator had read may be stale", topic, source),
	}
}
