package invalidator

import (
	"sync"
	"time"
)

// pacer spaces first deletes so that there are no more than rate keys a second. The zero rate does not pace. All
// methods may be called by any goroutine.
type pacer struct {
	rate int

	mu   sync.Mutex
	next moment // when the next key may go
}

// pacerBurst is for how long a pause is made up for, and how much of a second's keys goes out at once.
const pacerBurst = 50 * time.Millisecond

// ready returns when the next keys may go: now or earlier, or later.
func (p *pacer) ready() moment {
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
func (p *pacer) take(now moment, keys int) {
	if p.rate == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = max(p.next, now.add(-pacerBurst)).add(time.Duration(float64(keys) / float64(p.rate) * float64(time.Second)))
}
