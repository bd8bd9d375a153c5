package consumer

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// marker makes the brokers write the marker of a transaction at the end of a partition, as they do for a program that
// copies a topic in transactions: an offset that holds no record.
func (r *rig) marker(partition int) {
	r.t.Helper()
	c, ctx, id := r.client.Kafka(), r.t.Context(), r.names.Topic+".copy"
	eventually(r.t, "a transaction is made", func() bool {
		producer, err := c.InitProducerID(ctx,
			&kafka.InitProducerIDRequest{TransactionalID: id, TransactionTimeoutMs: 60_000})
		if err != nil || producer.Error != nil {
			return false // its coordinator is being made
		}
		p := producer.Producer
		added, err := c.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
			TransactionalID: id, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch,
			Topics: map[string][]kafka.AddPartitionToTxn{r.names.Topic: {{Partition: partition}}},
		})
		must(r.t, err)
		for _, a := range added.Topics[r.names.Topic] {
			if a.Error != nil {
				return false
			}
		}
		ended, err := c.EndTxn(ctx, &kafka.EndTxnRequest{
			TransactionalID: id, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, Committed: true,
		})
		must(r.t, err)
		return ended.Error == nil
	})
}

// What holds no record needs no work: the group is finished with it once it is finished with what lies before.
func TestOffsetsWithoutARecordAreFinishedWithWhatLiesBefore(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 2)
	r.marker(0)
	w := r.work(false)
	batches := w.take(2)
	finished := func(want int64) {
		t.Helper()
		eventually(t, "what is finished is told", func() bool {
			lags := w.consumer.Lags()
			return len(lags) == 1 && lags[0].Finished == want && lags[0].End == 3
		})
	}
	batches[0].commit()
	finished(1)
	batches[1].commit()
	finished(3)
	// Also when a record follows.
	r.series(0, 3, 3)
	w.take(1)[0].commit()
	eventually(t, "all is finished", func() bool { return w.consumer.Lags()[0].Records == 0 })
	// A reader that says as of when all lay below the marker is believed.
	now := time.Now().Truncate(time.Microsecond)
	r.mark("s", 1, 30, now, 4)
	eventually(t, "it is fresh", func() bool { return w.consumer.FreshAsOf().Equal(now) })
}

// A reader whose clock is ahead must not make the cache look fresh after it has died.
func TestNothingIsFreshAsOfATimeToCome(t *testing.T) {
	r := newRig(t, 1)
	w := r.work(true)
	ahead := time.Now().Add(time.Hour)
	r.mark("s", 1, 30, ahead, 0)
	eventually(t, "it is fresh", func() bool { return !w.consumer.FreshAsOf().IsZero() })
	if got, now := w.consumer.FreshAsOf(), time.Now(); got.After(now) {
		t.Errorf("fresh as of %s, and it is %s", got, now)
	}
}
