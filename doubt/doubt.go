package doubt

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/retry"
)

// Doubt says that some keys may be stale although all that was read is finished.
type Doubt struct {
	// ID names the doubt to operators. It follows from the cause and the subject: the same trouble with the same subject is
	// the same doubt, also when it is read again after a crash. [Book.Record] sets it.
	ID string `json:"id"`
	// Cause is the kind of the alarm that is raised with it.
	Cause alarm.Kind `json:"cause"`
	// Source and Group say whose doubt it is: of a source's rows (all Redis that are kept fresh from it), or of the Redis
	// that one group of invalidators keeps fresh. One of them may be empty.
	Source string `json:"source,omitempty"`
	Group  string `json:"group,omitempty"`
	// Tables are those whose keys may be stale, as schema.table; empty: of every mapped table.
	Tables []string `json:"tables,omitempty"`
	// Subject tells doubts of one cause apart where the tables do not, such as a server or a partition.
	Subject string `json:"subject,omitempty"`
	// Message is a whole sentence for the operator: what, where, what to do. No key, no row value, no secret.
	Message string `json:"message"`
	// Since and Last are when it came first and last, by this machine's clock, for display only; Count is how often.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
}

// id returns the name of a doubt: 8 hexadecimal digits of what makes it itself.
func (d *Doubt) id() string {
	h := fnv.New32a()
	for _, part := range slices.Concat([]string{string(d.Cause), d.Source, d.Group, d.Subject}, d.Tables) {
		fmt.Fprintf(h, "%q", part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Keeper keeps doubts durably.
type Keeper interface {
	// Doubts returns all that are kept.
	Doubts(ctx context.Context) ([]Doubt, error)
	// PutDoubt keeps d in the place of the one with its ID; it is durable when PutDoubt returns nil.
	PutDoubt(ctx context.Context, d Doubt) error
	// DropDoubt removes the doubt with this ID, if there is one, durably.
	DropDoubt(ctx context.Context, id string) error
}

// ErrUnknown: there is no doubt with this ID.
var ErrUnknown = errors.New("no such doubt")

const (
	// most is how many doubts a book keeps of one cause. Beyond it they are told as one about every table.
	most = 200
	// again is how long a doubt that is kept already is only counted in memory when it comes again.
	again = time.Second
)

// Book is the list of what is in doubt. A nil Book logs to slog.Default and keeps nothing, so that a test need not make
// one.
type Book struct {
	alarms *alarm.Board
	keeper Keeper
	open   *prometheus.GaugeVec

	mu     sync.Mutex
	doubts map[string]*entry
}

type entry struct {
	Doubt
	kept time.Time // when it was last put; zero: not yet
}

// New returns a book that raises an alarm with each doubt and keeps it in k; nil: in memory only. It is empty until
// [Book.Load].
func New(k Keeper, alarms *alarm.Board, reg prometheus.Registerer) (*Book, error) {
	b := &Book{alarms: alarms, keeper: k, doubts: map[string]*entry{}, open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "freshet_doubts",
		Help: "Causes for which keys may be stale until somebody answers them, by cause.",
	}, []string{"cause"})}
	for _, c := range Causes() {
		b.open.WithLabelValues(string(c))
	}
	if reg == nil {
		return b, nil
	}
	return b, reg.Register(b.open)
}

// Load reads what is kept. It may be called again, when others write to the same keeper.
func (b *Book) Load(ctx context.Context) error {
	if b.keeper == nil {
		return nil
	}
	kept, err := b.keeper.Doubts(ctx)
	if err != nil {
		return fmt.Errorf("doubts: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	is := map[string]bool{}
	for _, d := range kept {
		is[d.ID] = true
		if b.doubts[d.ID] == nil {
			b.doubts[d.ID] = &entry{Doubt: d, kept: time.Now()}
		}
	}
	for id, e := range b.doubts {
		if !is[id] && !e.kept.IsZero() {
			delete(b.doubts, id) // somebody else dismissed it
		}
	}
	b.count()
	return nil
}

// Record adds a doubt, or counts it once more, and raises its alarm. It returns when the doubt is durable: what caused it
// must not be passed over before. While it cannot be kept it tries again, with an alarm, until ctx ends; then it returns
// ctx's error, and the caller must not go on.
func (b *Book) Record(ctx context.Context, d Doubt) error {
	if b == nil {
		var none *alarm.Board
		none.Raise(d.Cause, d.Message)
		return nil
	}
	b.alarms.Raise(d.Cause, d.Message)
	d, put := b.note(d)
	if !put || b.keeper == nil {
		return nil
	}
	backoff, err := retry.NewBackoff(retry.BackoffOptions{})
	if err != nil {
		return err
	}
	for {
		err := b.keeper.PutDoubt(ctx, d)
		if err == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			if e := b.doubts[d.ID]; e != nil {
				e.kept = time.Now()
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.alarms.Raise(alarm.StoreFailed, "a doubt cannot be kept, so reading waits: "+err.Error())
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// note enters d in memory, so that the status says so from here on, and reports whether it has to be put.
func (b *Book) note(d Doubt) (Doubt, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(d.Tables)
	d.ID = d.id()
	now := time.Now()
	if b.doubts[d.ID] == nil && b.of(d.Cause) >= most {
		d.Tables, d.Subject = nil, ""
		d.Message = fmt.Sprintf("more than %d doubts of this kind: all keys of every mapped table may be stale", most)
		d.ID = d.id()
	}
	e := b.doubts[d.ID]
	if e == nil {
		d.Since = now
		e = &entry{Doubt: d}
		b.doubts[d.ID] = e
	}
	e.Last, e.Message = now, d.Message
	e.Count++
	b.count()
	return e.Doubt, now.Sub(e.kept) > again
}

// of returns how many doubts have a cause.
func (b *Book) of(c alarm.Kind) (n int) {
	for _, e := range b.doubts {
		if e.Cause == c {
			n++
		}
	}
	return n
}

func (b *Book) count() {
	n := map[alarm.Kind]int{}
	for _, c := range Causes() {
		n[c] = 0
	}
	for _, e := range b.doubts {
		n[e.Cause]++
	}
	for c, v := range n {
		b.open.WithLabelValues(string(c)).Set(float64(v))
	}
}

// List returns the doubts, oldest first.
func (b *Book) List() []Doubt {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Doubt, 0, len(b.doubts))
	for _, e := range b.doubts {
		out = append(out, e.Doubt)
	}
	slices.SortFunc(out, func(x, y Doubt) int { return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID)) })
	return out
}

// Dismiss removes a doubt for good: somebody has seen to it. It returns [ErrUnknown] if there is none with this ID.
func (b *Book) Dismiss(ctx context.Context, id string) error {
	b.mu.Lock()
	known := b.doubts[id] != nil
	b.mu.Unlock()
	if !known {
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	if b.keeper != nil {
		if err := b.keeper.DropDoubt(ctx, id); err != nil {
			return fmt.Errorf("dismiss doubt %s: %w", id, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.doubts, id)
	b.count()
	return nil
}

// Causes returns the kinds of alarm that are doubts.
func Causes() []alarm.Kind {
	return []alarm.Kind{alarm.TruncatedTable, alarm.StatementLogged, alarm.BinlogIncomplete}
}
