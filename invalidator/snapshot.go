package invalidator

import (
	"fmt"
	"time"

	"github.com/freshet/freshet/event/latency"
)

// Snapshot is how the engine stands, for /status.
type Snapshot struct {
	// RedisUp says whether Redis answers and takes deletes; Redis says it in a sentence.
	RedisUp bool   `json:"redis_up"`
	Redis   string `json:"redis"`
	// InFlight is how many keys were fetched and not yet deleted once, Pending how many were and are not
	// finished; of these, Unmarked wait to be known as visible and InTrouble are refused by Redis.
	InFlight  int64 `json:"in_flight"`
	Pending   int64 `json:"pending"`
	Unmarked  int64 `json:"unmarked"`
	InTrouble int64 `json:"in_trouble"`
	// RateLimited of the pending wait for the rate limit of their mapping, and RebuildQueue of all for a query to
	// begin.
	RateLimited  int64 `json:"rate_limited"`
	RebuildQueue int64 `json:"rebuild_queue"`
	// Bytes is about what all unfinished work holds.
	Bytes int64 `json:"bytes"`
	// Waiting says in a sentence why nothing is fetched; "" while it is.
	Waiting string `json:"waiting,omitempty"`
	// StoreFull is true while keys in trouble cannot be parked.
	StoreFull bool `json:"store_full"`
	// OldestUnfinished is how long ago the oldest unfinished batch was fetched.
	OldestUnfinished time.Duration `json:"oldest_unfinished_ns"`
	// Lag is how far behind the source's commits the finished work is, by the source's clock: that of the partition
	// that is furthest behind.
	Lag time.Duration `json:"lag_ns"`
	// Latency is from commit, by the source's clock, to the first delete's acknowledgement.
	Latency latency.Percentiles `json:"latency_last_minute"`
	// Partitions are those that are served now, in the order of their numbers.
	Partitions []PartitionSnapshot `json:"partitions"`
}

// Snapshot returns how the engine stands. It may be called by any goroutine, and costs little.
func (e *Engine) Snapshot() Snapshot {
	up, redis := e.state()
	s := Snapshot{
		RedisUp: up, Redis: redis,
		InFlight: e.room.inFlight.Load(), Pending: e.room.pending.Load(), Bytes: e.room.bytes.Load(),
		Unmarked:         e.unmarked(),
		InTrouble:        e.sum(func(s *partitionLoop) int64 { return s.troubled.Load() }),
		RateLimited:      e.sum(func(s *partitionLoop) int64 { return s.limited.Load() }),
		RebuildQueue:     e.queries.waiting.Load(),
		OldestUnfinished: e.oldest(),
		Latency:          e.latency.Invalidation.LastMinute(time.Now()),
		Partitions:       e.lags(),
	}
	for _, p := range s.Partitions {
		s.Lag = max(s.Lag, p.Lag)
	}
	e.mu.Lock()
	for p := range e.partitions {
		s.StoreFull = s.StoreFull || p.full.Load()
	}
	e.mu.Unlock()
	switch limit := e.room.full(); {
	case !up:
		s.Waiting = "redis is away"
	case s.StoreFull:
		s.Waiting = "the store of parked keys and dead letters is full"
	case limit != "":
		s.Waiting = "invalidator." + limit + " is reached"
	}
	return s
}

// Acknowledged returns how many deletes of a key Redis has acknowledged since the engine was made: first, final and
// later ones. It may be called by any goroutine.
func (e *Engine) Acknowledged() uint64 { return e.metrics.ackedKeys.Load() }

// LongestD returns the longest second delete of all that was fetched since the engine was made; 0 if none had any.
// Where the mappings are another process's, this is all that is known of them. It may be called by any goroutine.
func (e *Engine) LongestD() time.Duration { return time.Duration(e.spans.longest.Load()) }

// state says how the node is, also in a sentence.
func (h *health) state() (up bool, sentence string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	up = h.isUp.Load()
	switch {
	case up:
		return up, fmt.Sprintf("%s answers, since %s", h.redis, h.sinceWall.UTC().Format(time.RFC3339))
	case h.reason == nil:
		return up, fmt.Sprintf("%s has not answered yet", h.redis)
	case h.sinceWall.IsZero():
		return up, fmt.Sprintf("%s has never answered: %s", h.redis, plain(h.reason))
	}
	return up, fmt.Sprintf("%s is away since %s: %s", h.redis, h.sinceWall.UTC().Format(time.RFC3339), plain(h.reason))
}

// sum adds up what f says about each partition.
func (e *Engine) sum(f func(*partitionLoop) int64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	var n int64
	for s := range e.partitions {
		n += f(s)
	}
	return n
}

// oldest returns how long ago the oldest unfinished batch was fetched.
func (e *Engine) oldest() time.Duration {
	now := e.clock()
	var age time.Duration
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.partitions {
		if at := instant(s.oldest.Load()); at != 0 {
			age = max(age, now.sub(at))
		}
	}
	return age
}
