package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// topicPartitions is how many partitions the topics of these tests have.
const topicPartitions = 3

// around is the site with its event log in a topic of its own.
func (s *site) around(t *testing.T, kafka *testbed.KafkaCluster) *site {
	t.Helper()
	a := *s
	a.t, a.topic = t, kafka.NewTopicName(t)
	a.group = "g-" + a.topic[len(a.topic)-8:] // what makes the name one that no other test has
	a.kafka = fmt.Sprintf(`brokers: ["%s"], topic: %q, group: %q, partitions: %d`,
		strings.Join(kafka.Brokers(), `", "`), a.topic, a.group, topicPartitions)
	return &a
}

// part is the site of one process around Kafka, which has a configuration and a listener of its own.
func (s *site) part(role string) *site {
	s.t.Helper()
	p := *s
	p.role, p.listen = role, testbed.FreeAddress(s.t)
	return &p
}

// writeMany inserts products and caches a value for each.
func (s *site) writeMany(from, to int) {
	s.t.Helper()
	var values []string
	for id := from; id <= to; id++ {
		s.cache(fmt.Sprintf("product:%d", id))
		values = append(values, fmt.Sprintf("(%d, 1)", id))
	}
	s.source.Exec(s.t, "INSERT INTO shop.product VALUES "+strings.Join(values, ",")+
		" ON DUPLICATE KEY UPDATE price = price + 1")
}

// size returns how many keys Redis holds, but for freshet's own.
func (s *site) size() int64 {
	s.t.Helper()
	return int64(len(s.allCached()))
}

func (s *site) isEmpty() bool { return s.size() == 0 }

// nothingCached fails the test if Redis holds a key.
func (s *site) nothingCached() {
	s.t.Helper()
	if n := s.size(); n != 0 {
		s.t.Errorf("%d keys are left", n)
	}
}

func TestUntilCaughtUpEndsForEachPartAroundKafka(t *testing.T) {
	t.Parallel()
	for name, kafka := range map[string]func(testing.TB) *testbed.KafkaCluster{
		"newest": testbed.SharedKafka,
		"4.1.0": func(t testing.TB) *testbed.KafkaCluster {
			return testbed.Kafka(t, testbed.KafkaOptions{Version: "4.1.0"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			partsCatchUp(newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka(t)))
		})
	}
}

func partsCatchUp(s *site) {
	t := s.t
	reader, invalidator, run := s.part("reader"), s.part("invalidator"), s.part("run")
	// There is nothing to do, and the topics are just being made.
	for _, p := range []*site{invalidator, reader, run} {
		if rows, keys := p.caughtUp(); rows != 0 || keys != 0 {
			t.Errorf("%s with nothing to do: rows=%d keys=%d", p.role, rows, keys)
		}
	}
	const n = 300
	s.writeMany(1, n)
	if rows, keys := reader.caughtUp(); rows != n || keys != 0 {
		t.Errorf("reader: rows=%d keys=%d", rows, keys)
	}
	if rows, keys := invalidator.caughtUp(); rows != 0 || keys < n {
		t.Errorf("invalidator: rows=%d keys=%d", rows, keys)
	}
	s.nothingCached()
	if rows, keys := invalidator.caughtUp(); rows != 0 || keys != 0 {
		t.Errorf("the topic comes twice: rows=%d keys=%d", rows, keys)
	}
	// Part of the backlog is in the topic, part of it in the binlog yet.
	s.writeMany(n+1, 2*n)
	reader.caughtUp()
	s.writeMany(2*n+1, 3*n)
	if rows, keys := run.caughtUp(); rows != n || keys < 2*n {
		t.Errorf("run: rows=%d keys=%d", rows, keys)
	}
	s.nothingCached()
	// Another invalidator has its share, and goes on afterwards.
	other := s.part("invalidator")
	stays := other.start("invalidator")
	other.await("it has all partitions", func(st *app.Status) bool { return len(st.Partitions) == topicPartitions })
	s.writeMany(3*n+1, 4*n)
	reader.caughtUp()
	invalidator.caughtUp()
	s.nothingCached()
	if code := stays.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// awaitFresh waits until the process of the site is fresh.
func (s *site) awaitFresh() {
	s.t.Helper()
	s.await(s.role+" is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
}
