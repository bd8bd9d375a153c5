package event

import (
	"fmt"
	"time"
)

// Progress is how far something is that takes a while. It is for people: of what there is in all, only an estimate may
// be known.
type Progress struct {
	// Done is how much is done, and Of about how much there is in all; 0: that is not known.
	Done int64 `json:"done"`
	Of   int64 `json:"of,omitempty"`
	// Keys is how many keys were found or forgotten, as far as that is counted.
	Keys int64 `json:"keys,omitempty"`
	// PerSecond is how much was done in a second of the last half minute, and Left about how many seconds the rest takes
	// at that pace; 0: neither is known.
	PerSecond float64 `json:"per_second,omitempty"`
	Left      float64 `json:"left_seconds,omitempty"`
}

// Share returns which share is done, from 0 to 1. False: that is not known.
func (p *Progress) Share() (share float64, known bool) {
	if p == nil || p.Of <= 0 || p.Done > p.Of {
		return 0, false
	}
	return float64(p.Done) / float64(p.Of), true
}

// String says pace and time left, as far as they are known.
func (p *Progress) String() string {
	if p == nil || p.PerSecond <= 0 {
		return ""
	}
	s := fmt.Sprintf("%.0f a second", p.PerSecond)
	if p.PerSecond < 10 {
		s = fmt.Sprintf("%.1f a second", p.PerSecond)
	}
	if p.Left > 0 {
		left := time.Duration(p.Left * float64(time.Second))
		switch {
		case left < time.Minute:
			left = max(left.Round(time.Second), time.Second)
		case left < time.Hour:
			left = left.Round(10 * time.Second)
		default:
			left = left.Round(time.Minute)
		}
		s += ", about " + left.String() + " left"
	}
	return s
}

// AllAt returns about how much there is in all, if done is that share of it; 0: that is not known.
func AllAt(share float64, done int64) int64 {
	if share <= 0 || done <= 0 {
		return 0
	}
	return max(done, int64(float64(done)/share))
}

// Meter makes a [Progress] of counts. The zero Meter is ready. It is for one goroutine at a time.
type Meter struct {
	samples []sample
}

type sample struct {
	at   time.Time
	done int64
}

// metered is over how long the pace is taken, and maxSamples over how many counts.
const (
	metered    = 30 * time.Second
	maxSamples = 64
)

// Take takes that so much was done at a moment, of about so much in all; 0: that is not known.
func (m *Meter) Take(at time.Time, done, of int64) *Progress {
	if n := len(m.samples); n > 0 && done < m.samples[n-1].done {
		m.samples = m.samples[:0] // it has begun again
	}
	m.samples = append(m.samples, sample{at, done})
	for len(m.samples) > maxSamples || len(m.samples) > 2 && at.Sub(m.samples[1].at) > metered {
		m.samples = m.samples[1:]
	}
	p := &Progress{Done: done, Of: of}
	if of > 0 && done > of {
		p.Of = 0 // the estimate was too low
	}
	first := m.samples[0]
	if took := at.Sub(first.at); took > 0 && done > first.done {
		p.PerSecond = float64(done-first.done) / took.Seconds()
		if p.Of > 0 {
			p.Left = float64(p.Of-done) / p.PerSecond
		}
	}
	return p
}
