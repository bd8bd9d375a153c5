package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// The same with Kafka: the reader is killed before and after the doubt is in the topic, the invalidator in each page of
// the answer, before and after it is kept that the doubt is answered, and that the group has settled it, and the reader
// when it ends the doubt.
func TestAroundKafkaEachProcessThatIsKilledAtAnyStepOfADoubtGoesOnWithIt(t *testing.T) {
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Proxied: true})
	for _, d := range testbed.Some(t, databases) {
		t.Run(d.name, func(t *testing.T) { // one after the other: they share the proxy
			l := newLivesAround(t, d.start(t), cluster)
			l.beforeItIsWritten()
			l.whileItIsAnswered()
			l.settled()
			l.asItIsWritten()
			l.asItIsSettled()
			l.asItEnds()
			l.aroundItsEnd()
		})
	}
}

// newLivesAround starts a reader and an invalidator.
func newLivesAround(t *testing.T, source *testbed.Server, cluster *testbed.KafkaCluster) *lives {
	t.Helper()
	l := livesOn(newSite(t, source).around(t, cluster))
	l.kafka, l.reads = cluster, l.part("reader")
	l.site = l.part("invalidator")
	l.begin()
	return l
}

// expel has the brokers take note that the process of a site is gone.
func (l *lives) expel(s *site) {
	l.t.Helper()
	group := s.group
	if s.role == "reader" {
		group = s.topic + ".reader.default"
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(l.kafka.Brokers()...), Transport: transport}
	res, err := client.DescribeGroups(l.t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	testbed.Must(l.t, err)
	for _, m := range res.Groups[0].Members {
		left, err := client.LeaveGroup(l.t.Context(), &kafka.LeaveGroupRequest{
			GroupID: group, Members: []kafka.LeaveGroupRequestMember{{ID: m.MemberID}},
		})
		testbed.Must(l.t, err)
		testbed.Must(l.t, left.Error)
	}
}

// written says which requests to the brokers are meant: those that write a record whose key begins so into the topic
// that has the ending.
func (l *lives) written(ending, key string) func(r proxy.Request) bool {
	return func(r proxy.Request) bool {
		_, record, found := strings.Cut(r.Begins, l.topic+ending)
		return r.API == proxy.Produce && found && strings.Contains(record, key)
	}
}

// heldAtBroker kills a process when it writes what is meant: before the brokers have it, or when they do and it does
// not know. do is what leads to that.
func (l *lives) heldAtBroker(s *site, step string, meant func(r proxy.Request) bool, appended bool, do func()) {
	l.t.Helper()
	line := l.kafka.Broker(1).Proxy
	reached, released := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	n := 0
	line.OnRequest(func(r proxy.Request) proxy.Action {
		if !meant(r) {
			return proxy.Forward
		}
		mu.Lock()
		n++
		now := n
		mu.Unlock()
		switch {
		case appended && now == 1:
			return proxy.DropReply
		case now == 1 || appended && now == 2: // it tries again, so the first is in the topic
			close(reached)
		}
		<-released
		return proxy.DropCommand
	})
	do()
	select {
	case <-reached:
	case <-time.After(patience):
		l.t.Fatalf("%s: it does not come to that: %+v", step, l.status())
	}
	l.again(s, step, func() {
		line.OnRequest(nil)
		close(released)
	})
}

// eitherWay kills a process at a step in both ways; a cut does so in one of them.
func (l *lives) eitherWay(s *site, step string, meant func(r proxy.Request) bool, do func()) {
	l.t.Helper()
	for _, appended := range testbed.Some(l.t, []bool{false, true}) {
		l.heldAtBroker(s, fmt.Sprintf("%s, written %t", step, appended), meant, appended, do)
		l.settled()
	}
}

// settled waits until the doubt is gone everywhere. No key may be stale.
func (l *lives) settled() {
	l.t.Helper()
	undoubted(l.reads, l.site)
	if left := l.allCached(); len(left) != 1 || left[0] != "other:1" {
		l.t.Fatalf("%d keys are left: %.200q", len(left), left)
	}
}

func (l *lives) truncate() {
	l.t.Helper()
	l.fill()
	l.source.Exec(l.t, "TRUNCATE shop.product")
}

// asItIsWritten kills the reader when it writes the doubt, and when it saves the position after it.
func (l *lives) asItIsWritten() {
	l.t.Helper()
	l.eitherWay(l.reads, "the doubt", l.written(".doubts", "doubt/"), l.truncate)
	l.eitherWay(l.reads, "the position", l.written(".checkpoint.", ""), l.truncate)
}

// asItIsSettled kills the invalidator when it keeps that the doubt is answered, and that it is settled.
func (l *lives) asItIsSettled() {
	l.t.Helper()
	l.eitherWay(l.site, "what is answered", l.written(".doubts", "fact/answered/"), l.truncate)
	l.eitherWay(l.site, "it is settled", l.written(".doubts", "fact/settled/"), l.truncate)
}

// asItEnds kills the reader when it removes the doubt, which all groups have settled, and when it removes what is left
// of it then.
func (l *lives) asItEnds() {
	l.t.Helper()
	doubt := l.written(".doubts", "doubt/")
	for step, meant := range map[string]func(r proxy.Request) bool{
		"the end of the doubt":        doubt,
		"what groups settled is left": l.written(".doubts", "fact/settled/"),
	} {
		var mu sync.Mutex
		written := 0 // how many records of the doubt: the first puts it there, and the second removes it
		l.heldAtBroker(l.reads, step, func(r proxy.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if doubt(r) {
				written++
			}
			return written > 1 && meant(r)
		}, false, l.truncate)
		l.settled()
	}
}
