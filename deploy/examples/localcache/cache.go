package localcache

import (
	"context"
	"sync"
	"time"
)

// Cache holds values by key. It implements [Handler], and may be used by many goroutines.
//
// A value is given out only while the stream has been heard of within the lease: a line that went silent, a follower
// that is stuck or a Redis that is away make every Get a load, and never an old value that nobody forgets.
type Cache struct {
	load  func(ctx context.Context, key string) (string, error)
	limit int
	lease time.Duration

	mu      sync.Mutex // guards what follows
	values  map[string]string
	loading map[string]*loading
	asOf    time.Time
}

// loading is what goes on for a key that is not held.
type loading struct {
	by int // how many load it
	// changed is set when the key changed meanwhile: what they bring may be old, and is not held.
	changed bool
}

// New returns an empty cache of at most limit keys. load reads Redis' primary and, on a miss, the database; it must
// take no longer than freshet's second_delete. The lease is for how long the follower may be silent: some seconds.
func New(limit int, lease time.Duration, load func(ctx context.Context, key string) (string, error)) *Cache {
	return &Cache{load: load, limit: limit, lease: lease, values: map[string]string{}, loading: map[string]*loading{}}
}

// Get returns the value of a key, and whether it was held.
func (c *Cache) Get(ctx context.Context, key string) (value string, held bool, err error) {
	value, held, l := c.begin(key)
	if held {
		return value, true, nil
	}
	value, err = c.load(ctx, key)
	c.end(key, value, err, l)
	return value, false, err
}

func (c *Cache) begin(key string) (value string, held bool, l *loading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value, held = c.values[key]; held && time.Since(c.asOf) < c.lease {
		return value, true, nil
	}
	// A load that began before the key changed is none of ours: ours begins after it.
	l = c.loading[key]
	if l == nil || l.changed {
		l = &loading{}
		c.loading[key] = l
	}
	l.by++
	return "", false, l
}

func (c *Cache) end(key, value string, err error, l *loading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.by--; l.by == 0 && c.loading[key] == l {
		delete(c.loading, key)
	}
	if err != nil || l.changed {
		return
	}
	if _, there := c.values[key]; !there && len(c.values) >= c.limit {
		for any := range c.values { // whichever comes first; you may want the least used
			delete(c.values, any)
			break
		}
	}
	c.values[key] = value
}

// Changed implements [Handler].
func (c *Cache) Changed(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.values, key)
	if l := c.loading[key]; l != nil {
		l.changed = true
	}
}

// Lost implements [Handler].
func (c *Cache) Lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.values)
	for _, l := range c.loading {
		l.changed = true
	}
}

// Current implements [Handler].
func (c *Cache) Current(asOf time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asOf = asOf
}
