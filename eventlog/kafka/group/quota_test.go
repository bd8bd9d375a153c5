package group

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// A heartbeat's answer is not held back: since KIP-219 the broker answers, and then reads nothing of the connection for
// as long as the quota asks, which for requests is never longer than quota.window.size.seconds: 1 s unless it is
// changed. The next heartbeat is that late, which is far from the 5 s after which a member gives up. Source:
// https://cwiki.apache.org/confluence/display/KAFKA/KIP-219, KIP-124.
func TestAMemberWhoseRequestsAreThrottledStaysInItsGroup(t *testing.T) {
	t.Parallel()
	cluster := testbed.SharedKafka(t)
	r := newRig(t, cluster, 3)
	line := proxy.StartKafka(t, cluster.Brokers()[0])
	c, err := broker.New(broker.Options{
		Brokers: cluster.Brokers(), ClientID: r.group,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, line.Addr())
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	res, err := c.Kafka().AlterClientQuotas(t.Context(),
		&kafka.AlterClientQuotasRequest{Entries: []kafka.AlterClientQuotaEntry{{
			Entities: []kafka.AlterClientQuotaEntity{{EntityType: "client-id", EntityName: r.group}},
			Ops:      []kafka.AlterClientQuotaOps{{Key: "request_percentage", Value: 0.001}},
		}}})
	must(t, err)
	must(t, res.Entries[0].Error)

	var generations atomic.Int32
	began := make(chan struct{}, 100)
	m, err := New(c, Options{
		ID: r.group, Topics: r.topics, Session: DefaultSession,
		Generation: func(map[string][]int) { generations.Add(1); began <- struct{}{} },
	})
	must(t, err)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- m.Run(ctx, func(ctx context.Context, _ *Assignment) error { <-ctx.Done(); return nil })
	}()
	<-began
	testbed.Eventually(t, 2*time.Minute, "a throttled request", func() bool {
		res, err := c.Kafka().ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{r.topics[0]: {kafka.LastOffsetOf(0)}},
		})
		must(t, err)
		return res.Throttle > 0
	})
	from := line.Requests(proxy.Heartbeat)
	testbed.Eventually(t, 2*time.Minute, "ten heartbeats",
		func() bool { return line.Requests(proxy.Heartbeat) >= from+10 })
	if n := generations.Load(); n != 1 {
		t.Errorf("there have been %d generations", n)
	}
	leave()
	must(t, <-done)
}
