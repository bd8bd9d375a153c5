package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// troubles are what the router cannot fix. It belongs to the reader's goroutine. Those that leave a key stale are
// doubts: they are gathered while rows are routed, since a million rows may have the same, and recorded before the
// batch is handed on, so that they are durable before the position passes their rows.
type troubles struct {
	alarms *alarm.Board
	doubts *doubt.Book
	source string
	// group is the group of invalidators whose Redis alone is in doubt; "": every one is.
	group string
	// gathered are those since the last batch; a message stands for its kind and its table.
	gathered map[string]doubt.Doubt
	// place is where the present row stands; zero: in no binlog. unnamed counts the rows that lacked a column of a key.
	place   event.Version
	unnamed int
	// seen takes each definition of a mapped table; nil: nobody wants them.
	seen *definitions
}

// maxGathered bounds what is gathered for one batch; beyond it, tables are left out, which means all.
const maxGathered = 1000

// Report implements router.Reporter.
func (t *troubles) Report(kind router.Trouble, table, message string) {
	switch kind {
	case router.ValueTooLarge, router.ValueUnfit:
		t.alarms.Raise(alarm.ValueLost, message) // its key was deleted
	case router.PredicateFailed:
		t.alarms.Raise(alarm.PredicateFailed, message) // and counted as true
	case router.KeyTooLong:
		t.gather(alarm.KeyTooLong, table, message)
	default:
		t.unnamed++
		t.gather(alarm.ColumnAbsent, table, message)
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
		t.gathered = map[string]doubt.Doubt{}
	}
	t.gathered[d.Message] = *d
}

func (t *troubles) gather(cause alarm.Kind, table, message string) {
	if d, known := t.gathered[message]; known {
		d.At = t.place
		t.gathered[message] = d
		return
	}
	d := doubt.Doubt{
		Cause: cause, Source: t.source, Group: t.group, Tables: []string{table}, At: t.place, Message: message,
	}
	if cause != alarm.ColumnAbsent { // which freshet answers
		d.Message += ": clear the keys of the table"
	}
	if len(t.gathered) >= maxGathered {
		message, d.Tables = string(cause), nil
	}
	if t.gathered == nil {
		t.gathered = map[string]doubt.Doubt{}
	}
	t.gathered[message] = d
}

// record makes what was gathered durable.
func (t *troubles) record(ctx context.Context) error {
	if t == nil || len(t.gathered) == 0 {
		return nil
	}
	for _, message := range slices.Sorted(maps.Keys(t.gathered)) {
		if err := t.doubts.Record(ctx, t.gathered[message]); err != nil {
			return err
		}
	}
	clear(t.gathered)
	return nil
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
		if !errors.As(err, &problems) {
			return needs, err
		}
		for _, p := range problems {
			if err := t.unfit(ctx, fmt.Sprintf("table %s: %s", table, p)); err != nil {
				return needs, err
			}
		}
		return needs, nil
	}
}

// unfit records that a mapping cannot be used with a table.
func (t *troubles) unfit(ctx context.Context, what string) error {
	return t.doubts.Record(ctx, unfitDoubt(t.source, what))
}

func unfitDoubt(source, what string) doubt.Doubt {
	return doubt.Doubt{
		Cause: alarm.MappingUnfit, Source: source, Subject: what, Message: what +
			"; the keys of this mapping are not deleted meanwhile: clear them once it is fixed",
	}
}
