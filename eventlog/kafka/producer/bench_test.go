package producer

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// sink takes everything at once.
type sink struct {
	partitions int
	bytes      atomic.Int64
	records    atomic.Int64
}

func (s *sink) ProduceAll(_ context.Context, _ string, to []broker.ProduceTo) []broker.ProduceResult {
	results := make([]broker.ProduceResult, len(to))
	for i, t := range to {
		s.bytes.Add(int64(len(t.Records[0].Value)))
		results[i].Offset = s.records.Add(1)
	}
	return results
}

func (s *sink) Leaders(context.Context, string) ([]int, error) { return make([]int, s.partitions), nil }

func (s *sink) End(context.Context, string, int) (int64, error) { return 0, nil }

// stream makes batches of 2000 keys, each rows event of so many rows.
func stream(batches, rows int) []*event.Batch {
	all := make([]*event.Batch, batches)
	id, tx, pos := 0, uint64(0), uint64(4)
	for i := range all {
		b := &event.Batch{Source: source, Term: 7, Age: event.Unknown, At: time.Now()}
		for b.Len() < 2000 {
			pos += 300
			tx++
			g := event.GTID{UUID: [16]byte{1, 2, 3}, Number: tx}
			at := time.Unix(1_700_000_000, int64(pos)*1000)
			b.AddOrigin(event.Origin{
				Table: "shop.product", Tx: event.Tx{GTID: g, Committed: at},
				Event: event.Version{Epoch: 1, File: 12, Pos: pos}, D: 2 * time.Second,
			})
			for row := range rows {
				id++
				b.Add(fmt.Appendf(b.Text(), "product:%d", id), uint32(row+1), event.ActionDelete)
			}
			b.End.AddTx("binlog.000012", pos+300, g, at)
		}
		all[i] = b.Clone()
	}
	return all
}

func benchmark(b *testing.B, c Client, o Options, rows int) {
	r := run(b, c, o)
	all := stream(200, rows)
	r.append(all[0])
	<-r.Durable()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := r.Append(b.Context(), all[i%len(all)]); err != nil {
			b.Fatal(err)
		}
	}
	r.flush()
	b.StopTimer()
	b.ReportMetric(float64(b.N)*2000/b.Elapsed().Seconds(), "keys/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAppend is the way from Append to the encoded record. With -cpu 1 it says what a core can do.
func BenchmarkAppend(b *testing.B) {
	for _, rows := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			s := &sink{partitions: 12}
			benchmark(b, s, Options{}, rows)
			b.ReportMetric(float64(s.bytes.Load())/float64(b.N+1)/2000, "B/key")
			b.ReportMetric(float64(s.bytes.Load())/float64(s.records.Load())/1024, "KiB/record")
		})
	}
}

// BenchmarkGathered is the way from Append to the records of all partitions when a quarter of a million keys of bulk
// changes of a transaction have gathered, 60 in a rows event: what a key costs with many partitions.
func BenchmarkGathered(b *testing.B) {
	all := stream(128, 60)
	for _, batch := range all {
		for i := range batch.Origins {
			o := &batch.Origins[i]
			o.Number, o.Committed = all[0].Origins[0].Number, all[0].Origins[0].Committed
		}
	}
	for _, partitions := range []int{1, 12, 64} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			l, to := newLedger(1<<40, latency.New()), make([]*sendQueue, partitions)
			for i := range to {
				to[i] = &sendQueue{id: i, most: DefaultMaxRecord}
				to[i].lane.Store(&lane{wake: newWakeup()})
			}
			var s spread
			var enc record.Encoder
			keys, size := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				keys, size = 0, 0
				for _, batch := range all {
					s.out(l, &entry{}, batch, to)
				}
				for _, p := range to {
					for p.waiting() > 0 {
						p.seal(&Options{Source: source, Term: 7}, &enc)
						keys, size, p.left = keys+p.sealed.rows, size+len(p.sealed.value), p.left-p.sealed.rows
						p.drop(p.sealed.upTo)
						p.sealed = nil
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(keys), "ns/key")
			b.ReportMetric(float64(size)/float64(keys), "B/key")
		})
	}
}

// BenchmarkBroker produces to the brokers that FRESHET_TEST_KAFKA names, or those of the tests.
func BenchmarkBroker(b *testing.B) {
	for _, compression := range []kafka.Compression{0, kafka.Lz4, kafka.Zstd} {
		b.Run("compression="+compression.String(), func(b *testing.B) {
			c, err := broker.New(broker.Options{
				Brokers:     strings.Split(os.Getenv("FRESHET_TEST_KAFKA"), ","),
				Compression: compression,
			})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			topics := broker.Names{Topic: fmt.Sprintf("bench-%d", time.Now().UnixNano())}
			_, err = c.Kafka().CreateTopics(b.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
				{Topic: topics.Topic, NumPartitions: 12, ReplicationFactor: 1},
				{Topic: topics.Marks(), NumPartitions: 1, ReplicationFactor: 1},
			}})
			if err != nil {
				b.Fatal(err)
			}
			benchmark(b, c, Options{Topics: topics}, 10)
			if _, err := c.Kafka().DeleteTopics(b.Context(),
				&kafka.DeleteTopicsRequest{Topics: []string{topics.Topic, topics.Marks()}}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
