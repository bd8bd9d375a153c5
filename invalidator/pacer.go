package invalidator

import (
	"sync"
	"time"
)

// pacer spaces first actions so that there are no more than rate keys a second. The zero rate does not pace. All
// methods may be called by any goroutine.
type pacer struct {
	rate int // settled when it is made

	mu   sync.Mutex
	next instant // when the next key may go
}

// pacers are the pacers of the mappings that have a rate limit of their own, shared by all partitions.
type pacers struct {
	mu sync.Mutex
	of map[pacedBy]*pacer
}

// pacedBy is whose limit a pacer keeps: a mapping of the configuration under which a source is read. A mapping whose
// limit was changed is another one.
type pacedBy struct {
	source        string
	mapping, rate int
}

// get returns a mapping's pacer.
func (p *pacers) get(by pacedBy) *pacer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[pacedBy]*pacer{}
	}
	if p.of[by] == nil {
		p.of[by] = &pacer{rate: by.rate}
	}
	return p.of[by]
}

// pacerBurst is for how long a pause is made up for, and how much of a second's keys goes out at once.
const pacerBurst = 50 * time.Millisecond

// ready returns when the next keys may go: now or earlier, or later.
func (p *pacer) ready() instant {
	if p.rate == 0 {
		return always
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// most returns how many keys may go at once.
func (p *pacer) most() int {
	if p.rate == 0 {
		return tripKeys
	}
	return min(max(int(float64(p.rate)*pacerBurst.Seconds()), 1), tripKeys)
}

// take counts keys that go now.
func (p *pacer) take(now instant, keys int) {
	if p.rate == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = max(p.next, now.add(-pacerBurst)).add(time.Duration(float64(keys) / float64(p.rate) * float64(time.Second)))
}
