package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// deletions are when the first key of each partition was deleted.
type deletions struct {
	*site
	from, to int // the products
	first    map[int]time.Time
}

// left looks at Redis, and returns how many keys it holds of some partitions.
func (d *deletions) left(of map[int]bool) (n int) {
	d.t.Helper()
	for id := d.from; id <= d.to; id++ {
		key := fmt.Sprintf("product:%d", id)
		p := producer.Partition(key, topicPartitions)
		switch cached := d.cached(key); {
		case cached && of[p]:
			n++
		case !cached && d.first[p].IsZero():
			d.first[p] = time.Now()
		}
	}
	return n
}

// given waits until invalidators share all partitions, and returns those of each.
func (s *site) given(parts ...*site) (of []map[int]bool) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "all partitions are shared", func() bool {
		n, all := 0, map[int]bool{}
		of = nil
		for _, p := range parts {
			mine := map[int]bool{}
			if st := p.status(); st != nil && st.State == app.Fresh {
				for _, q := range st.Partitions {
					mine[q.ID], all[q.ID] = true, true
				}
			}
			if len(mine) > 0 {
				n++
			}
			of = append(of, mine)
		}
		return n == len(parts) && len(all) == topicPartitions
	})
	return of
}

// groupState is what the brokers say that the group does.
func (s *site) groupState(k *testbed.KafkaCluster) string {
	s.t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers()...), Transport: transport}
	res, err := client.DescribeGroups(s.t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{s.group}})
	testbed.Must(s.t, err)
	return res.Groups[0].GroupState
}

// The brokers wait for the one that was killed until its session is over, and share nothing out before.
func TestWhileAKilledInvalidatorComesBackTheOthersGoOnDeleting(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Proxied: true})
	line := cluster.Broker(1).Proxy
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, cluster)
	reader, survivor, victim := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	reader.start("reader")
	reader.awaitFresh()
	going, killed := survivor.start("invalidator"), victim.start("invalidator")
	s.given(survivor, victim)
	s.writeMany(1, 30)
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)

	back, rounds := killed, 0
	// a slow machine may need more than a session to start it again
	for attempt := 0; attempt < 3 && rounds == 0; attempt++ {
		kept := s.given(survivor, victim)[0]
		joins := line.Requests(proxy.JoinGroup)
		back.Kill9()
		at := time.Now()
		back = victim.start("invalidator")
		testbed.Eventually(t, patience, "it and the other have joined again",
			func() bool { return line.Requests(proxy.JoinGroup) >= joins+2 })
		d := &deletions{site: s, from: 1, to: 30, first: map[int]time.Time{}}
		for ; rounds < 5; rounds++ {
			s.writeMany(d.from, d.to)
			testbed.Eventually(t, patience, "all of the other's partitions is deleted", func() bool { return d.left(kept) == 0 })
			if s.groupState(cluster) != "PreparingRebalance" {
				break
			}
		}
		testbed.Eventually(t, patience, "all is deleted", func() bool { d.left(nil); return s.isEmpty() })
		for p := range topicPartitions {
			whose := "the killed one's"
			if kept[p] {
				whose = "the other's"
			}
			t.Logf("partition %d, %s: the first delete %s after the kill", p, whose,
				d.first[p].Sub(at).Round(10*time.Millisecond))
		}
	}
	if rounds == 0 {
		t.Error("the other deleted nothing before the rebalance was over")
	}
	for _, r := range []*testbed.Running{going, back} {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	}
}
