package consumer

import (
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/event/asof"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// maxMoments is how many moments of a source are kept.
const maxMoments = 128

// asOfEnds says that all that a source held at a time lies below some offsets.
type asOfEnds struct {
	asOf time.Time
	ends []int64
}

// history is what is known of each source, oldest first.
type history struct {
	mu      sync.Mutex
	sources map[string]*sourceHistory
}

type sourceHistory struct {
	term uint64
	list []asOfEnds
}

// add takes a mark. One of an older leader says nothing any more. One without a moment says that there is such a
// source: as long as that has none, nothing is fresh, for a reader that is behind by a long backlog cannot say anything
// either.
func (h *history) add(m *record.Mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sources == nil {
		h.sources = map[string]*sourceHistory{}
	}
	s := h.sources[m.Source]
	if s == nil {
		s = &sourceHistory{}
		h.sources[m.Source] = s
	}
	if m.Term < s.term {
		return
	}
	s.term = m.Term
	if m.AsOf.IsZero() {
		return
	}
	// Moments that were reached are kept too, since a partition that comes with the next rebalance may be further
	// behind.
	s.list = asof.Thin(append(s.list, asOfEnds{m.AsOf, m.Ends}), maxMoments,
		func(e *asOfEnds) int64 { return e.asOf.UnixNano() })
}

// forget drops a source that is no more.
func (h *history) forget(source string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sources, source)
}

// asOf returns the newest moment that is reached by all sources, given how far each partition is finished; the zero
// time when there is none. A partition that a mark does not name holds nothing of its source as of then.
func (h *history) asOf(finished map[int]int64) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var least time.Time
	for _, s := range h.sources {
		var newest time.Time
		for _, m := range slices.Backward(s.list) {
			if m.reached(finished) {
				newest = m.asOf
				break
			}
		}
		if newest.IsZero() {
			return time.Time{}
		}
		if least.IsZero() || newest.Before(least) {
			least = newest
		}
	}
	return least
}

// FreshAsOf returns the newest moment, on the readers' clocks, as of which this partition is finished, as
// [Consumer.FreshAsOf] does for all.
func (p *assignedPartition) FreshAsOf() time.Time {
	p.mu.Lock()
	finished := p.finished
	p.mu.Unlock()
	return p.c.history.asOf(map[int]int64{p.id: finished})
}

func (m *asOfEnds) reached(finished map[int]int64) bool {
	for p, offset := range finished {
		if p < len(m.ends) && offset < m.ends[p] {
			return false
		}
	}
	return true
}
