package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/leader"
)

// onKafka calls do with a client for the brokers of a configuration.
func onKafka(c *config.Config, do func(*broker.Client) error) error {
	client, err := connect.Kafka(c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return errors.Join(do(client), client.Close())
}

// openTopics returns a client for the brokers of a configuration, once it has seen that these topics are there.
func openTopics(ctx context.Context, c *config.Config, topics []broker.Topic) (*broker.Client, error) {
	client, err := connect.Kafka(c, nil, slog.Default())
	if err != nil {
		return nil, err
	}
	if err := client.Ensure(ctx, topics, false); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

// readKafkaPosition reads the position of a source from its checkpoint topic, also while its reader runs.
func readKafkaPosition(ctx context.Context, c *config.Config) (p event.Position, err error) {
	err = onKafka(c, func(client *broker.Client) error {
		v, err := leader.OpenCheckpoint(ctx, client, connect.Topics(c), c.Source.Name)
		if err != nil {
			return err
		}
		p = v.Position
		return v.Lost
	})
	return p, err
}

// setKafkaPosition sets the position of a source whose readers are stopped. The topics are made if they may be: the
// position may be set before the first start.
func setKafkaPosition(ctx context.Context, w io.Writer, c *config.Config, log *slog.Logger, where string,
	skip bool,
) error {
	return onKafka(c, func(client *broker.Client) error {
		n := connect.Topics(c)
		if err := client.Ensure(ctx, broker.ReaderTopics(n, c.Source.Name, connect.Sizing(c)),
			c.EventLog.Kafka.CreateTopics); err != nil {
			return err
		}
		if _, err := client.Fit(ctx, broker.ReaderTopics(n, c.Source.Name, connect.Sizing(c))); err != nil {
			return err
		}
		v, err := leader.OpenCheckpoint(ctx, client, n, c.Source.Name)
		if err != nil {
			return err
		}
		to, err := locate(ctx, c, where)
		if err != nil {
			return err
		}
		return moveTo(w, log, &v.Position, &to, skip, func(skipped *doubt.Doubt) error {
			// With readers running it is refused below, and nothing is skipped.
			if running, err := client.GroupMembers(ctx, n.ReaderGroup(c.Source.Name)); skipped != nil &&
				(err != nil || running == 0) {
				kept, err := openKafkaDoubts(ctx, c)
				if err == nil {
					err = errors.Join(recordAlone(ctx, kept.keeper, c, skipped), kept.Close())
				}
				if err != nil {
					return err
				}
			}
			err := leader.SetPosition(ctx, client, n, c.Source.Name, to)
			if errors.Is(err, leader.ErrRunning) {
				return fmt.Errorf("%w; stop freshet before its position is set", err)
			}
			return err
		})
	})
}

// checkKafka looks at the brokers and topics, and returns the saved position of the source. It does not know it where
// freshet would not start.
func checkKafka(ctx context.Context, c *config.Config, r *Report) (saved event.Position, known bool) {
	var topics []broker.Topic
	var groups []string
	if c.HasSource() {
		groups = append(groups, connect.Topics(c).ReaderGroup(c.Source.Name))
		topics = append(topics, broker.ReaderTopics(connect.Topics(c), c.Source.Name, connect.Sizing(c))...)
	}
	if c.HasRedis() {
		groups = append(groups, c.EventLog.Kafka.Group)
		topics = append(topics, broker.InvalidatorTopics(connect.Topics(c), c.EventLog.Kafka.Group, c.Retry.ParkDelays,
			connect.Sizing(c))...)
	}
	failed := false
	err := onKafka(c, func(client *broker.Client) error {
		found := client.Check(ctx, topics, c.EventLog.Kafka.CreateTopics, groups...)
		for _, f := range found {
			grade := Warn
			if f.Fail {
				grade, failed = Fail, true
			}
			r.add(grade, f.What, f.Fix)
		}
		if len(found) == 0 {
			r.add(OK, fmt.Sprintf("kafka: the brokers answer, and all topics of %s are as they should be",
				c.EventLog.Kafka.Topic), "")
		}
		return nil
	})
	if err != nil {
		r.add(Fail, err.Error(), "")
		return saved, false
	}
	if failed || !c.HasSource() {
		return saved, false
	}
	saved, err = readKafkaPosition(ctx, c)
	if err == nil || broker.Classify(err) == broker.Missing { // freshet makes the topic when it starts
		return saved, true
	}
	r.add(Fail, err.Error(), "")
	return saved, false
}
