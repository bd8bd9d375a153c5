package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// definitions are the last definitions of each mapped table that the source or its binlog has shown, with no more
// columns than the mappings use. A doubt about a table is recorded together with them, for of a table that was
// dropped or altered nobody else knows what its keys were. They are kept across restarts, since that may happen while
// freshet is down. They are safe for concurrent use.
type definitions struct {
	facts doubt.Facts // nil: they are not kept
	name  string      // of the fact
	log   *slog.Logger
	// used are the columns that mappings use, in lower case.
	used map[string]bool

	mu sync.Mutex
	// of are those of each table, the newest last.
	of    map[string][]*event.Table
	dirty bool
}

const (
	// maxOf is how many definitions of a table are known, and maxColumns how many columns of each.
	maxOf      = 4
	maxColumns = 100
	// maxDefinitions bounds how many a doubt is given.
	maxDefinitions = 16
	// keepsEach is how often new definitions are kept.
	keepsEach = time.Second
)

func newDefinitions(facts doubt.Facts, source string, log *slog.Logger, mappings []*router.Mapping) *definitions {
	d := &definitions{
		facts: facts, name: "definitions/" + source, log: log, used: map[string]bool{}, of: map[string][]*event.Table{},
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
	if d.facts == nil {
		return nil
	}
	text, err := d.facts.Fact(ctx, d.name)
	if err != nil || text == nil {
		return err
	}
	var kept keptDefinitions
	if err := json.Unmarshal(text, &kept); err != nil {
		return err
	}
	for name := range d.used {
		if !kept.Used[name] {
			return nil // the mappings use more by now, and what was kept has not all of it
		}
	}
	d.add(kept.Tables...)
	return nil
}

// keptDefinitions is the form in which they are kept.
type keptDefinitions struct {
	Used   map[string]bool `json:"used"`
	Tables []*event.Table  `json:"tables"`
}

// run keeps what is new until ctx ends.
func (d *definitions) run(ctx context.Context) error {
	for retry.Sleep(ctx, keepsEach) == nil {
		d.keep(ctx)
	}
	d.keep(context.WithoutCancel(ctx))
	return nil
}

// keep keeps the definitions if there are new ones. As many as a fact can hold are kept.
func (d *definitions) keep(ctx context.Context) {
	d.mu.Lock()
	dirty := d.dirty
	d.dirty = false
	d.mu.Unlock()
	if d.facts == nil || !dirty {
		return
	}
	all := d.all()
	text, err := json.Marshal(keptDefinitions{d.used, all})
	for err == nil && len(text) > doubt.MaxFact && len(all) > 0 {
		all = all[:len(all)/2]
		text, err = json.Marshal(keptDefinitions{d.used, all})
	}
	if err == nil {
		err = d.facts.SetFact(ctx, d.name, text)
	}
	if err != nil {
		d.log.Warn("the columns of the mapped tables cannot be kept; trying again", "error", err)
		d.mu.Lock()
		d.dirty = true
		d.mu.Unlock()
	}
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
	for _, t := range d.all() {
		if len(what.Definitions) < maxDefinitions && operate.TableInDoubt(what, t) {
			what.Definitions = append(what.Definitions, t)
		}
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
