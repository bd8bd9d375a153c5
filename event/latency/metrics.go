package latency

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stages are the histograms of one process: the headline and one for each stage. A process that runs only some of
// the stages leaves the others empty.
type Stages struct {
	// Invalidation is the headline: from commit until Redis has acknowledged the first delete of the last key of
	// the batch. Counts transactions.
	Invalidation *Histogram
	// Read is from commit until the reader hands the routed keys to the event log. Counts transactions.
	Read *Histogram
	// Append is from then until the log has taken the batch: embedded, until there was room for it; with Kafka,
	// until the brokers acknowledged it. Counts batches, as all that follow.
	Append *Histogram
	// Fetch is from then until the invalidator fetched it.
	Fetch *Histogram
	// Delete is from then until Redis has acknowledged the first delete of its last key.
	Delete *Histogram
	// Finish is from then until everything of it is finished, final deletes included.
	Finish *Histogram
}

// New returns empty histograms, registered nowhere.
func New() *Stages {
	stage := func(name string) *Histogram {
		return newHistogram(prometheus.NewDesc("freshet_stage_seconds",
			"How long changes take in each stage of their path: read (from commit), append, fetch, delete, finish.",
			nil, prometheus.Labels{"stage": name}))
	}
	return &Stages{
		Invalidation: newHistogram(prometheus.NewDesc("freshet_invalidation_latency_seconds",
			"From a transaction's commit, by the source's clock, until Redis had acknowledged the first delete of its keys.",
			nil, nil)),
		Read: stage("read"), Append: stage("append"), Fetch: stage("fetch"), Delete: stage("delete"), Finish: stage("finish"),
	}
}

// Stage is how one stage did in the last minute.
type Stage struct {
	Name string
	Percentiles
}

// LastMinute returns how each stage did in the minute before now, in the order of the path.
func (s *Stages) LastMinute(now time.Time) []Stage {
	return []Stage{
		{"read", s.Read.LastMinute(now)},
		{"append", s.Append.LastMinute(now)},
		{"fetch", s.Fetch.LastMinute(now)},
		{"delete", s.Delete.LastMinute(now)},
		{"finish", s.Finish.LastMinute(now)},
	}
}

// Register registers all histograms; nil: nowhere.
func (s *Stages) Register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, h := range []*Histogram{s.Invalidation, s.Read, s.Append, s.Fetch, s.Delete, s.Finish} {
		errs = append(errs, reg.Register(h))
	}
	return errors.Join(errs...)
}
