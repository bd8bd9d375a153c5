package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// definitions are the last definitions of each mapped table that the source or its binlog has shown, with no more
// columns than the mappings use. A doubt about a table is recorded together with them, for of a table that was
// dropped or altered nobody else knows what its keys were. They are kept across restarts, since that may happen while
// freshet is down, and with Kafka because invalidators know no other. They are safe for concurrent use.
type definitions struct {
	facts doubt.Facts
	name  string // of the fact
	log   *slog.Logger
	// used are the columns that mappings use, in lower case.
	used map[string]bool

	// ask asks the source for all mapped tables; nil: it need not be known here whether these are all.
	ask func(ctx context.Context) ([]*event.Table, error)

	// keeping is held while they are written. kept is what was written last.
	keeping sync.Mutex
	kept    []byte

	mu sync.Mutex
	// of are those of each table, the newest last.
	of    map[string][]*event.Table
	dirty bool
	// whole is when the source was last asked for all tables; zero: not since its mappings use these columns.
	whole time.Time
	// gone are the tables that it did not have any more, with since when.
	gone map[string]time.Time
}

const (
	// maxOf is how many definitions of a table are known, and maxColumns how many columns of each.
	maxOf      = 4
	maxColumns = 100
	// maxGone is how many tables that are gone are known: a doubt about one may still come, and has its own copy then.
	maxGone = 1000
	// maxDefinitions bounds how many a doubt is given.
	maxDefinitions = 16
	// keepsEach is how often new definitions are kept.
	keepsEach = time.Second
	// asksForAllEach is how often the source is asked for all tables, where invalidators learn them.
	asksForAllEach = time.Minute
)

func newDefinitions(facts doubt.Facts, source string, log *slog.Logger, mappings []*router.Mapping) *definitions {
	d := &definitions{
		facts: facts, name: operate.DefinitionsFact(source), log: log,
		used: map[string]bool{}, of: map[string][]*event.Table{}, gone: map[string]time.Time{},
	}
	for _, m := range mappings {
		for _, name := range m.Columns() {
			d.used[strings.ToLower(name)] = true
		}
	}
	return d
}

// load adds what was kept.
func (d *definitions) load(ctx context.Context) error {
	text, err := d.facts.Fact(ctx, d.name)
	if err != nil || text == nil {
		return err
	}
	var kept operate.Definitions
	if err := operate.Unpack(text, &kept); err != nil {
		return fmt.Errorf("the columns of the mapped tables, as they were kept: %w", err)
	}
	for name := range d.used {
		if !kept.Used[name] {
			return nil // the mappings use more by now, and what was kept has not all of it
		}
	}
	d.add(kept.Tables...)
	return nil
}

// run keeps what is new until ctx ends.
func (d *definitions) run(ctx context.Context) error {
	for retry.Beat(ctx, keepsEach) == nil {
		if d.ask != nil && time.Since(d.asked()) > asksForAllEach {
			_ = d.look(ctx) // the reader says what keeps it from its source
		}
		d.keepOrSay(ctx)
	}
	if errors.Is(context.Cause(ctx), leader.ErrDeposed) {
		return nil // its successor knows more
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepsEach)
	defer cancel()
	d.keepOrSay(last)
	return nil
}

// refresh asks the source for all tables, and returns once what is new is kept.
func (d *definitions) refresh(ctx context.Context) error {
	if err := d.look(ctx); err != nil {
		return err
	}
	return d.keep(ctx)
}

// look asks the source for all tables.
func (d *definitions) look(ctx context.Context) error {
	tables, err := d.ask(ctx)
	if err != nil {
		return err
	}
	d.addAll(tables)
	return d.compare(ctx)
}

// compare looks whether what is kept is what was written here. A reader that leads no more, and does not know it yet,
// may have written what it knew.
func (d *definitions) compare(ctx context.Context) error {
	is, err := d.facts.Fact(ctx, d.name)
	if err != nil {
		return err
	}
	d.keeping.Lock()
	same := bytes.Equal(is, d.kept)
	d.keeping.Unlock()
	if !same {
		d.mu.Lock()
		d.dirty = true
		d.mu.Unlock()
	}
	return nil
}

// asked returns when the source was last asked for all tables.
func (d *definitions) asked() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.whole
}

// keepOrSay keeps the definitions, or says that they cannot be.
func (d *definitions) keepOrSay(ctx context.Context) {
	if err := d.keep(ctx); err != nil {
		d.log.Warn("the columns of the mapped tables cannot be kept; trying again", "error", err)
	}
}

// keep keeps the definitions if there are new ones. As many as a fact can hold are kept.
func (d *definitions) keep(ctx context.Context) error {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	d.mu.Lock()
	dirty, whole := d.dirty, !d.whole.IsZero()
	d.dirty = false
	d.mu.Unlock()
	if !dirty {
		return nil
	}
	kept := operate.Definitions{Used: d.used, Tables: d.all(), Whole: whole}
	text, err := operate.Pack(kept)
	for err == nil && len(text) > doubt.MaxFact && len(kept.Tables) > 0 {
		kept.Tables, kept.Whole = kept.Tables[:len(kept.Tables)/2], false
		text, err = operate.Pack(kept)
	}
	if err == nil {
		err = d.facts.SetFact(ctx, d.name, text)
	}
	if d.kept = text; err != nil {
		d.mu.Lock()
		d.dirty = true
		d.mu.Unlock()
	}
	return err
}

// addAll takes the definitions of all tables that there are.
func (d *definitions) addAll(tables []*event.Table) {
	d.add(tables...)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.whole, d.dirty = now, d.dirty || d.whole.IsZero()
	there := map[string]bool{}
	for _, t := range tables {
		there[t.String()] = true
	}
	for name := range d.of {
		if there[name] {
			delete(d.gone, name)
		} else if d.gone[name].IsZero() {
			d.gone[name] = now
		}
	}
	d.forgetGone()
}

// forgetGone forgets the tables that have been gone for longest, if they are too many: programs make and drop tables
// forever. The caller has the lock.
func (d *definitions) forgetGone() {
	if len(d.gone) <= maxGone {
		return
	}
	names := slices.SortedFunc(maps.Keys(d.gone), func(a, b string) int { return d.gone[a].Compare(d.gone[b]) })
	for _, name := range names[:len(names)-maxGone] {
		delete(d.gone, name)
		delete(d.of, name)
	}
	d.dirty = true
}

// add takes definitions.
func (d *definitions) add(tables ...*event.Table) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range tables {
		short := d.short(t)
		of := d.of[t.String()]
		i := slices.IndexFunc(of, func(o *event.Table) bool { return reflect.DeepEqual(o, short) })
		if i >= 0 && i == len(of)-1 {
			continue
		}
		if i >= 0 {
			of = slices.Delete(of, i, i+1)
		}
		of = append(of, short)
		d.of[t.String()], d.dirty = of[max(0, len(of)-maxOf):], true
	}
}

// all returns the definitions that are known.
func (d *definitions) all() (all []*event.Table) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, of := range d.of {
		all = append(all, of...)
	}
	return all
}

// describe gives a doubt about some tables their definitions.
func (d *definitions) describe(what *doubt.Doubt) {
	if what.EveryTable() {
		return
	}
	if what.Cause == alarm.TruncatedTable && len(what.Tables) == 2 {
		d.renamed(what.Tables[0], what.Tables[1])
	}
	for _, t := range d.all() {
		if len(what.Definitions) < maxDefinitions && operate.TableInDoubt(what, t) {
			what.Definitions = append(what.Definitions, t)
		}
	}
}

// renamed has a table of which no definition is known have those of another one: it was renamed, or a partition of it
// exchanged. The name may be gone again before a row shows what it had.
func (d *definitions) renamed(a, b string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.of[a]) == 0 {
		a, b = b, a
	}
	schema, name, ok := strings.Cut(b, ".")
	if len(d.of[a]) == 0 || len(d.of[b]) > 0 || !ok {
		return
	}
	for _, t := range d.of[a] {
		is := *t
		is.Schema, is.Name = schema, name
		d.of[b], d.dirty = append(d.of[b], &is), true
	}
}

// short returns a definition with no more columns than the mappings use.
func (d *definitions) short(t *event.Table) *event.Table {
	out := &event.Table{Schema: t.Schema, Name: t.Name, FoldNames: t.FoldNames}
	for _, c := range t.Columns {
		if d.used[strings.ToLower(c.Name)] && len(out.Columns) < maxColumns {
			out.Columns = append(out.Columns, c)
		}
	}
	return out
}
