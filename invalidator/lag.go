package invalidator

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PartitionSnapshot is how one partition stands.
type PartitionSnapshot struct {
	ID int `json:"id"`
	// Lag is how far its finished work is behind the source's commits, by the source's clock; zero while it is idle and
	// the reader says that it has handed over everything.
	Lag time.Duration `json:"lag_ns"`
	// InFlight and Pending are as in [Snapshot].
	InFlight int64 `json:"in_flight"`
	Pending  int64 `json:"pending"`
	// Idle is true while it waits for its log to have more.
	Idle bool `json:"idle"`
}

// staleMark is after how long without a mark the lag of an idle partition is no longer taken for zero.
const staleMark = 5 * time.Second

// heardRead is what marks say about all sources together.
type heardRead struct {
	// ago is since when it was last heard of each that everything had been handed over; negative: never of some.
	ago time.Duration
	// still is true if the newest mark of each says so.
	still bool
}

// freshPartition is a partition whose log knows as of when it is finished. A log with several partitions does: the
// reader has handed over everything, but what it put into this one may be still to be fetched.
type freshPartition interface {
	// FreshAsOf returns as of when, on the reader's clock, all that belongs to the partition is committed; the zero
	// time while that is not known.
	FreshAsOf() time.Time
}

// heard returns what is known about how far the reader is, as far as this partition is concerned.
func (s *partitionLoop) heard(now time.Time, read heardRead) heardRead {
	p, ok := s.log.(freshPartition)
	if !ok {
		return read
	}
	at := p.FreshAsOf()
	if at.IsZero() {
		return heardRead{ago: -1}
	}
	return heardRead{ago: max(now.Sub(at), 0), still: true}
}

// lags returns how each partition stands. One that is served twice for a moment, while it changes hands, is told
// once.
func (e *Engine) lags() []PartitionSnapshot {
	read := e.marks.read(e.clock())
	now, clock := time.Now(), e.clock()
	e.mu.Lock()
	all := make([]PartitionSnapshot, 0, len(e.partitions))
	for s := range e.partitions {
		if s.log.ID() < 0 {
			continue // no log's: a scope
		}
		all = append(all, PartitionSnapshot{
			ID: s.log.ID(), Lag: s.lag(now, clock, s.heard(now, read)), Idle: s.idle.Load(),
			InFlight: s.held.inFlight.Load(), Pending: s.held.pending.Load(),
		})
	}
	e.mu.Unlock()
	slices.SortFunc(all, func(a, b PartitionSnapshot) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(b.Lag, a.Lag))
	})
	return slices.CompactFunc(all, func(a, b PartitionSnapshot) bool { return a.ID == b.ID })
}

// lag returns how far behind the partition's finished work is: the age of the oldest commit that is not finished.
// Without any it is zero, if the reader says that it has handed over everything, and said so lately. Else it is the
// age of the last that is known: the last finished commit, the reader's last such word (which says nothing about
// what is still to be fetched, so only while the partition is idle), or the beginning if nothing is known yet.
func (s *partitionLoop) lag(now time.Time, clock instant, read heardRead) time.Duration {
	if behind := s.behind.Load(); behind != 0 {
		return max(now.Sub(time.Unix(0, behind)), 0)
	}
	idle := s.idle.Load() && read.ago >= 0
	if idle && read.still && read.ago <= staleMark {
		return 0
	}
	done := s.done.Load()
	finished := max(now.Sub(time.Unix(0, done)), 0)
	switch {
	case idle && done != 0:
		return min(finished, read.ago)
	case idle:
		return read.ago
	case done != 0:
		return finished
	}
	return clock.sub(s.served)
}

// partitionLag shows the lag of the partitions that are served: one that went to another process is not shown here
// any more.
type partitionLag struct{ engine *Engine }

// lagDesc describes the metric.
func lagDesc() *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, "partition_lag_seconds"),
		"How far a partition's finished work is behind the source's commits: 0 while idle and known to be caught up.",
		[]string{"partition"}, nil)
}

// Describe implements [prometheus.Collector].
func (partitionLag) Describe(c chan<- *prometheus.Desc) { c <- lagDesc() }

// Collect implements [prometheus.Collector].
func (p partitionLag) Collect(c chan<- prometheus.Metric) {
	desc := lagDesc()
	for _, s := range p.engine.lags() {
		c <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Lag.Seconds(), strconv.Itoa(s.ID))
	}
}
