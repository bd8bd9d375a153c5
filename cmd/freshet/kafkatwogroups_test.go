package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// By mistake, or while one takes the place of the other, two groups work on one Redis: each does what the topic says,
// and one of them long after the other. No value may be of before.
func TestTwoGroupsOnOneClusterLeaveNoStaleValue(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		l := newClusterSite(t, source, testbed.ClusterOptions{Masters: 3, Replicas: 1})
		l.everyForm()
		s := &struck{busySite: l.busySite, chance: testbed.Seeded(t)}
		s.hot = busyRows / 2
		s.site = s.around(t, testbed.SharedKafka(t))
		reader, a, b := s.part("reader"), s.part("invalidator"), s.part("invalidator")
		b.group += "-other"
		b.kafka = strings.Replace(b.kafka, s.group, b.group, 1)
		for _, p := range []*site{a, b} {
			p.readsRows, p.extra = true, "mappings: "+p.mappings+"\n"
		}
		reader.start("reader")
		at := map[*site]*testbed.Running{a: a.start("invalidator"), b: b.start("invalidator")}
		for _, p := range []*site{reader, a, b} {
			p.awaitFresh()
		}
		s.site = a // which is asked how far all is
		for round := range testbed.Cut(1, 20) {
			s.startLoad()
			s.fillUp()
			one := []*site{a, b}[s.chance.IntN(2)]
			kill := s.chance.IntN(2) == 0
			t.Logf("round %d: the group %s, killed: %v", round, one.group, kill)
			if kill {
				at[one].Kill9()
			} else {
				at[one].Signal(syscall.SIGSTOP)
			}
			s.changeAll()
			s.pass(4 * time.Second)
			if s.chance.IntN(2) == 0 {
				n := s.chance.IntN(3)
				t.Log("a replica takes over")
				l.cluster.Failover(t, l.cluster.Masters[n], l.cluster.Replicas[n])
				l.cluster.Masters[n], l.cluster.Replicas[n] = l.cluster.Replicas[n], l.cluster.Masters[n]
			}
			if kill {
				at[one] = one.start("invalidator")
			} else {
				at[one].Signal(syscall.SIGCONT)
			}
			s.changeAll()
			s.finished(a, b)
			s.fillUp()
			s.haltLoad()
			s.finished(a, b)
			s.noneStale()
		}
		s.stopLoad(a, b)
	})
}
