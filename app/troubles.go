package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// troubles are what the router cannot fix. It belongs to the reader's goroutine, but for healBy. Those that leave a key
// stale are doubts: they are gathered while rows are routed, since a million rows may have the same, and recorded
// before the batch is handed on, so that they are durable before the position passes their rows.
type troubles struct {
	alarms *alarm.Board
	doubts *doubt.Book
	source string
	// group is the group of invalidators whose Redis alone is in doubt; "": every one is.
	group string
	// gathered are those since the last batch.
	gathered map[trouble]doubt.Doubt
	// place is where the present row stands; zero: in no binlog. unnamed counts the rows that lacked a column of a key.
	place   event.Version
	unnamed int
	// seen takes each definition of a mapped table; nil: nobody wants them.
	seen *definitions
	// heals says that the rows are those of the live stream: a definition that is right ends what is in doubt of its
	// table.
	heals bool
	// mappings are those of the router.
	mappings []*router.Mapping
	// fitting is held while it is recorded what fits a table and what does not: [reading.healAll] does so as well.
	fitting sync.Mutex
}

// trouble names what is gathered: a message stands for its kind and its table. A column may be lacking in several keys.
type trouble struct{ message, template string }

func (t trouble) compare(o trouble) int {
	return cmp.Or(cmp.Compare(t.message, o.message), cmp.Compare(t.template, o.template))
}

// maxGathered bounds what is gathered for one batch; beyond it, tables are left out, which means all.
const maxGathered = 1000

// Report implements router.Reporter.
func (t *troubles) Report(kind router.Trouble, table, template, message string) {
	switch kind {
	case router.ValueTooLarge, router.ValueUnfit:
		t.alarms.Raise(alarm.ValueLost, message) // its key was deleted
	case router.PredicateFailed:
		t.alarms.Raise(alarm.PredicateFailed, message) // and counted as true
	case router.KeyTooLong:
		t.gather(alarm.KeyTooLong, table, template, message)
	default:
		t.unnamed++
		t.gather(alarm.ColumnAbsent, table, template, message)
	}
}

// begin takes note of where the row stands that is routed next, and returns how many rows lacked a column before it.
func (t *troubles) begin(at event.Version) (unnamed int) {
	if t == nil {
		return 0
	}
	t.place = at
	return t.unnamed
}

// lacked reports whether a row has lacked a column since begin.
func (t *troubles) lacked(unnamed int) bool { return t != nil && t.unnamed > unnamed }

// cascaded takes a doubt about rows that changed without row events. A burst of them is one doubt, about the last
// place.
func (t *troubles) cascaded(d *doubt.Doubt) {
	if t.gathered == nil {
		t.gathered = map[trouble]doubt.Doubt{}
	}
	t.gathered[trouble{message: d.Message}] = *d
}

// gather takes trouble that leaves keys of a template stale.
func (t *troubles) gather(cause alarm.Kind, table, template, message string) {
	is := trouble{message, template}
	if d, known := t.gathered[is]; known {
		d.At = t.place
		t.gathered[is] = d
		return
	}
	d := doubt.Doubt{
		Cause: cause, Source: t.source, Group: t.group, Tables: []string{table}, Templates: []string{template},
		At: t.place, Message: message,
	}
	if cause != alarm.ColumnAbsent { // which freshet answers
		d.Message += ": clear the keys of " + template
	}
	if len(t.gathered) >= maxGathered {
		is, d.Tables, d.Templates = trouble{message: string(cause)}, nil, nil
	}
	if t.gathered == nil {
		t.gathered = map[trouble]doubt.Doubt{}
	}
	t.gathered[is] = d
}

// record makes what was gathered durable, and returns the last place that it is about; zero: nothing was.
func (t *troubles) record(ctx context.Context) (last event.Version, err error) {
	if t == nil || len(t.gathered) == 0 {
		return last, nil
	}
	for _, is := range slices.SortedFunc(maps.Keys(t.gathered), trouble.compare) {
		d := t.gathered[is]
		if err := t.doubts.Record(ctx, d); err != nil {
			return last, err
		}
		if d.At.Compare(last) > 0 {
			last = d.At
		}
	}
	clear(t.gathered)
	return last, nil
}

// binding returns what canal asks for the columns of each table. A mapping that does not fit the table stops only
// itself: a column may be dropped while freshet runs, and its keys cannot be named then.
func (t *troubles) binding(bind func(*event.Table) ([]event.Need, error)) canal.Bind {
	return func(ctx context.Context, table *event.Table) ([]event.Need, error) {
		needs, err := bind(table)
		if needs != nil && t.seen != nil {
			t.seen.add(table)
		}
		var problems spec.Problems
		if err != nil && !errors.As(err, &problems) {
			return needs, err
		}
		return needs, t.fit(ctx, table, problems)
	}
}

// fit records which mappings cannot be used with a definition of a table, and has the doubts about the table answered
// that are over with it.
func (t *troubles) fit(ctx context.Context, table *event.Table, problems spec.Problems) error {
	t.fitting.Lock()
	defer t.fitting.Unlock()
	unfit := map[string]bool{}
	for _, p := range problems {
		d := unfitDoubt(t.source, router.Misfit{Table: table, Problem: p}).Named()
		unfit[d.ID] = true
		if err := t.unfit(ctx, d); err != nil {
			return err
		}
	}
	if !t.heals {
		return nil
	}
	for _, d := range t.doubts.List() {
		if t.over(&d, table) && !unfit[d.ID] {
			if err := t.heal(ctx, d, t.place); err != nil {
				return err
			}
		}
	}
	return nil
}

// fitAll is fit for all tables, with what does not fit them.
func (t *troubles) fitAll(ctx context.Context, tables []*event.Table, found []router.Misfit) error {
	of := map[string]spec.Problems{}
	for _, f := range found {
		if f.Table != nil {
			of[f.Table.String()] = append(of[f.Table.String()], f.Problem)
			continue
		}
		if err := t.doubts.Record(ctx, unfitDoubt(t.source, f)); err != nil {
			return err
		}
	}
	for _, table := range tables {
		if err := t.fit(ctx, table, of[table.String()]); err != nil {
			return err
		}
	}
	return nil
}

// unfit records that a mapping cannot be used with a definition. If the doubt is being answered, it was over and begins
// again: the answer that is under way must not end it.
func (t *troubles) unfit(ctx context.Context, d doubt.Doubt) error {
	d.At = t.place
	for _, is := range t.doubts.List() {
		if is.ID == d.ID && is.Asked {
			if err := t.doubts.Restart(ctx, d.ID); err != nil {
				return err
			}
		}
	}
	return t.doubts.Record(ctx, d)
}

// over reports whether a doubt lasts no longer than the definition of a table that was before, or than there was no
// table for a mapping, and nobody has asked for its answer since it came last.
func (t *troubles) over(d *doubt.Doubt, table *event.Table) bool {
	if d.Source != t.source || d.Asked && !d.Last.After(d.AskedAt) {
		return false
	}
	switch {
	case d.Cause == alarm.MappingUnfit && len(d.Tables) == 0:
		return slices.ContainsFunc(t.mappings, func(m *router.Mapping) bool {
			return m.Matches(table) && strings.Contains(d.Subject, m.Unmatched())
		})
	case d.Cause == alarm.MappingUnfit, d.Cause == alarm.EventUndecodable:
		return len(d.Tables) == 1 && d.Tables[0] == table.String()
	}
	return false
}

// heal has a doubt answered that is over: up to a place, changes of its table were passed over. The doubt comes once
// more for that, so that the answer is about this place.
func (t *troubles) heal(ctx context.Context, d doubt.Doubt, at event.Version) error {
	if at.Compare(d.At) > 0 {
		d.At = at
	}
	if err := t.doubts.Record(ctx, d); err != nil {
		return err
	}
	return t.doubts.Insist(ctx, d.ID)
}

// unfitDoubt is about one table, or, where no table matches, about the templates of the mapping.
func unfitDoubt(source string, m router.Misfit) doubt.Doubt {
	what := m.Error()
	d := doubt.Doubt{Cause: alarm.MappingUnfit, Source: source, Subject: what}
	if m.Table == nil {
		d.Templates = operate.Templates(m.Mapping)
		d.Message = what + "; the keys of this mapping are not deleted meanwhile, and are forgotten once there is such a table"
		return d
	}
	d.Tables = []string{m.Table.String()}
	d.Message = what + "; the keys of this mapping are not deleted meanwhile, and those of the table are forgotten once " +
		"it fits"
	return d
}
