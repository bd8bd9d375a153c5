package letters

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// The bounds of one request: well below the default of max.message.bytes (1 MiB), which counts a whole batch.
const (
	batchBytes   = 512 << 10
	batchRecords = 1000
)

// insist calls attempt until it succeeds, fails for good, or has failed for [broker.Grace]: a leader that moves is no
// news, an outage is the caller's.
func insist(ctx context.Context, attempt func() error) error {
	start := time.Now()
	loop := retry.Loop{Backoff: retry.Backoff{Max: time.Second}, Final: func(err error) bool {
		return broker.Classify(err) != broker.Transient || time.Since(start) > broker.Grace
	}}
	return loop.Do(ctx, attempt)
}

// produce appends records to the one partition of a topic, in as many requests as it takes, and tells then how many
// are acknowledged after each. On an error, more may have been appended than were told of: what is written here can
// be written twice.
func (s *Store) produce(ctx context.Context, topic string, records []broker.Record, then func(n int)) error {
	for len(records) > 0 {
		n, size := 0, 0
		for n < len(records) && n < batchRecords {
			size += len(records[n].Key) + len(records[n].Value)
			if n > 0 && size > batchBytes {
				break
			}
			n++
		}
		n, err := s.produceSome(ctx, topic, records[:n])
		if err != nil {
			return err
		}
		if then != nil {
			then(n)
		}
		records = records[n:]
	}
	return nil
}

// produceSome appends as many of the records as the brokers take in one batch, at least one.
func (s *Store) produceSome(ctx context.Context, topic string, records []broker.Record) (int, error) {
	for n := len(records); ; n = (n + 1) / 2 {
		err := insist(ctx, func() error {
			_, err := s.client.Produce(ctx, topic, 0, records[:n]...)
			return err
		})
		// The operator may have set a lower max.message.bytes than ours.
		if n > 1 && errors.Is(err, kafka.MessageSizeTooLarge) {
			continue
		}
		return n, err
	}
}
