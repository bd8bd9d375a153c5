package hot

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
)

// The defaults of [Options].
const (
	DefaultKeys    = 1024
	DefaultTables  = 256
	DefaultWindow  = 2 * time.Minute
	DefaultSamples = 2048
)

// MaxName is how many bytes of a key or table are kept.
const MaxName = 256

// Options configure a [Sketch]. The zero value of each field means its default.
type Options struct {
	// Keys and Tables are the numbers of counters: each key or table that has more than this part of all changes is
	// found. From 1 to 32768. Default 1024 and 256.
	Keys, Tables int
	// Window is how far back the rates reach: what came this long ago counts exp(-1) as much as what comes now. Default
	// 2 minutes.
	Window time.Duration
	// Samples is about how many keys a second are looked at, at most. Default 2048.
	Samples int
}

// Count is how often a key or a table changes.
type Count struct {
	// Name is the key without `redis.key_prefix`, or schema.table; its first [MaxName] bytes, whatever they are.
	Name string
	// Length is the length of the whole name in bytes.
	Length int
	// PerSecond is about how often it changed per second, over the last minutes: each change of a key counts, each key
	// of a changed table. Low and High are its bounds: the truth is above Low and below High with a probability of 95
	// %, and surely while nothing is left out.
	PerSecond, Low, High float64
}

// Sketch counts. See the package comment.
type Sketch struct {
	window  time.Duration
	samples int
	now     func() time.Time
	seed    maphash.Seed
	start   time.Time

	mu     sync.Mutex
	keys   *summary
	tables *summary
	random *rand.PCG
	// total is how many keys there were, and elapsed the seconds in which, both decayed as all counts.
	total, elapsed float64
	// decayed is until when; passed keys and taken samples came since.
	decayed time.Time
	passed  int
	taken   int
	// One key in stride is looked at; skip pass before the next.
	stride, skip int
}

const (
	// step is the time between two decays, and between two looks at how much comes.
	step = time.Second
	// maxStride bounds how long it takes to see that little comes again after much did.
	maxStride = 1 << 20
)

// New returns a sketch that has seen nothing.
func New(o Options) (*Sketch, error) {
	if o.Keys == 0 {
		o.Keys = DefaultKeys
	}
	if o.Tables == 0 {
		o.Tables = DefaultTables
	}
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.Samples == 0 {
		o.Samples = DefaultSamples
	}
	var errs []error
	for _, c := range []struct {
		of string
		n  int
	}{{"keys", o.Keys}, {"tables", o.Tables}} {
		if c.n < 1 || c.n > maxCounters {
			errs = append(errs, fmt.Errorf("hot: %d counters of %s: want 1 to %d", c.n, c.of, maxCounters))
		}
	}
	if o.Window < step {
		errs = append(errs, fmt.Errorf("hot: a window of %s: want at least %s", o.Window, step))
	}
	if o.Samples < 1 {
		errs = append(errs, fmt.Errorf("hot: %d samples a second: want at least 1", o.Samples))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s := &Sketch{
		window: o.Window, samples: o.Samples, now: time.Now, seed: maphash.MakeSeed(), start: time.Now(),
		keys: newSummary(o.Keys), tables: newSummary(o.Tables),
		random: rand.NewPCG(rand.Uint64(), rand.Uint64()), stride: 1,
	}
	s.decayed = s.start
	return s, nil
}

// Count counts the keys of a batch. It does not keep the batch, and allocates nothing.
func (s *Sketch) Count(b *event.Batch) {
	n := b.Len()
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	s.passed += n
	s.total += float64(n)
	i := s.skip
	for ; i < n; i += 1 + s.gap() {
		s.look(b, i)
	}
	s.skip = i - n
}

// look counts one key for all of its stride.
func (s *Sketch) look(b *event.Batch, i int) {
	key, table := b.Key(i), b.Of(i).Table
	weight := float64(s.stride)
	// Of n keys, one in stride was seen: the variance of n as estimated from the one that was seen.
	variance := weight * (weight - 1)
	s.keys.add(key, maphash.String(s.seed, key), weight, variance)
	s.tables.add(table, maphash.String(s.seed, table), weight, variance)
	s.taken++
	// A flood that comes at once is not looked at closely until the step is over.
	if s.taken >= s.samples && s.stride < maxStride {
		s.taken = s.samples / 2
		s.stride *= 2
	}
}

// gap returns how many keys to pass before the next, stride - 1 on average.
func (s *Sketch) gap() int {
	if s.stride == 1 {
		return 0
	}
	return int(s.random.Uint64() % uint64(2*s.stride-1))
}

// advance lets the counts decay until now, and sets the stride to what came in the last step. The caller holds mu.
func (s *Sketch) advance() {
	now := s.now()
	since := now.Sub(s.decayed)
	if since < step {
		return
	}
	f := math.Exp(-since.Seconds() / s.window.Seconds())
	s.keys.scale(f)
	s.tables.scale(f)
	s.total *= f
	s.elapsed = s.elapsed*f + s.window.Seconds()*(1-f)
	s.decayed = now
	stride := min(int(float64(s.passed)/since.Seconds())/s.samples+1, maxStride)
	s.passed, s.taken = 0, 0
	if stride != s.stride {
		s.stride = stride
		s.skip = s.gap()
	}
}

// Keys returns the n keys that change most, the hottest first; fewer when fewer changed.
func (s *Sketch) Keys(n int) []Count { return s.top(s.keys, n) }

// Tables returns the n tables whose rows make most keys stale, the hottest first; fewer when fewer changed.
func (s *Sketch) Tables(n int) []Count { return s.top(s.tables, n) }

// PerSecond returns how many keys changed per second over the last minutes. Nothing is left out of it.
func (s *Sketch) PerSecond() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total / s.seconds()
}

// Window returns how far back the rates reach.
func (s *Sketch) Window() time.Duration { return s.window }

// seconds brings the counts up to date and returns in how many seconds they came. The caller holds mu.
func (s *Sketch) seconds() float64 {
	s.advance()
	return max(s.elapsed+s.now().Sub(s.decayed).Seconds(), step.Seconds())
}

func (s *Sketch) top(of *summary, n int) []Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := s.seconds()
	top := of.top(n)
	for i := range top {
		c := &top[i]
		c.PerSecond, c.Low, c.High = c.PerSecond/seconds, c.Low/seconds, c.High/seconds
	}
	return top
}
