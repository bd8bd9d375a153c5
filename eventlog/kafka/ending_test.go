package kafka

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// notFinished has a member wait for the end of an empty topic, which must not come: partition 0 held more.
func (l *lossy) notFinished(want string) {
	l.t.Helper()
	m := l.join()
	m.CloseAt(map[int]int64{0: 0, 1: 0})
	<-m.done
	var lost *consumer.LostError
	err := m.stop()
	if !errors.As(err, &lost) || lost.Partition != 0 || lost.Loss != consumer.Truncated ||
		!strings.Contains(err.Error(), want) {
		l.t.Fatalf("ended with %v", err)
	}
	if d := m.doubts.List(); len(d) != 1 || d[0].Subject != l.names.Topic+"/0" {
		l.t.Errorf("doubts: %+v", d)
	}
}

// The commit is at or after the end that is waited for, and finishes nothing all the same.
func TestALogThatEndsBeforeTheGroupsCommitIsNotFinished(t *testing.T) {
	t.Parallel()
	l := newLossy(t)
	eventually(t, "an offset is committed", func() bool { // the group's coordinator may still be on its way
		res, err := l.client.Kafka().OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{
			GroupID: l.names.Topic, GenerationID: -1,
			Topics: map[string][]kafka.OffsetCommit{l.names.Topic: {{Partition: 0, Offset: 5, Metadata: "freshet1"}}},
		})
		return err == nil && res.Topics[l.names.Topic][0].Error == nil
	})
	l.notFinished("it has come to offset 5, and the log ends at 0")
}

// Kafka deletes the commits of a group with the topic.
func TestALogThatEndsBeforeWhatItsMarksSayIsNotFinished(t *testing.T) {
	t.Parallel()
	l := newLossy(t)
	mark := record.Mark{Mark: event.Mark{Source: "s", Term: 1}, AsOf: time.Now(), Ends: []int64{3, 0}}
	_, err := l.client.Produce(t.Context(), l.names.Marks(), 0, broker.Record{Key: []byte("s"), Value: mark.Append(nil)})
	must(t, err)
	l.notFinished("source s has written to it up to offset 3, and the log ends at 0")
	// A source that is no more says nothing.
	_, err = l.client.Produce(t.Context(), l.names.Marks(), 0, broker.Record{Key: []byte("s")})
	must(t, err)
	m := l.join()
	m.CloseAt(map[int]int64{0: 0, 1: 0})
	<-m.done
	must(t, m.stop())
}
