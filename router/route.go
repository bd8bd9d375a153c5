package router

import (
	"errors"

	"github.com/freshet/freshet/event"
)

// verdict says whether a mapping is for a row change, or what it asks for that the change has not.
type verdict uint8

const (
	wrongEvent verdict = iota
	unchanged
	predicateFalse
	admitted
)

// label is the verdict's value of the metric label `by`; empty for admitted.
func (v verdict) label() string {
	return [...]string{"events", "columns", "when", ""}[v]
}

// errDoubtful stands for a predicate that cannot be evaluated for any row of the table.
var errDoubtful = errors.New("it reads a column that the table lacks")

// Route appends the invalidations of one row change to the batch: mapping by mapping, key by key, the row before
// the change first. The change's table must have been given to [Router.Bind], and its images hold the columns that
// Bind returned.
func (r *Router) Route(b *event.Batch, c *event.Change) {
	p := r.planOf(c.Table)
	if len(p.rules) == 0 {
		return
	}
	r.row.begin(b)
	x := run{Router: r, b: b, c: c, p: p}
	for i := range p.rules {
		x.u = &p.rules[i]
		x.rule()
	}
	if !p.counts {
		return
	}
	r.once.begin(c)
	for i := range p.rules {
		x.u = &p.rules[i]
		x.counters()
	}
}

// Publish shows in the metrics what was routed since the last call. It must be called when rows pause.
func (r *Router) Publish() {
	for _, m := range r.mappings {
		m.meters.rows.publish()
		m.meters.keys.publish()
	}
}

// run is one rule at work on one row change.
type run struct {
	*Router
	b *event.Batch
	c *event.Change
	p *plan
	u *rule
	// after says what an action that writes does with the after-image.
	after event.Intent
}

func (x *run) rule() {
	u := x.u
	u.meters.rows.add(1)
	v, err := x.admit()
	if err != nil {
		u.meters.failed.Inc()
		x.tell(PredicateFailed, nil, u.failed)
	}
	if x.trace != nil {
		x.trace.Rule(u.Mapping, v.label(), err)
	}
	if v != admitted {
		u.meters.filtered[v].Inc()
		return
	}
	u.counting = len(u.counters) > 0
	from := x.b.Len()
	for i := range u.plain {
		x.deletes(&u.plain[i])
	}
	for _, acts := range u.effects {
		x.effects(acts)
	}
	u.meters.keys.add(x.b.Len() - from)
}

// counters makes the counters of the rule, after all else that is made of the row: who sees the new generation must
// not find what the old keys held.
func (x *run) counters() {
	if !x.u.counting {
		return
	}
	x.u.counting = false
	from := x.b.Len()
	x.effects(x.u.counters)
	x.u.meters.keys.add(x.b.Len() - from)
}

// deletes makes the plain deletes of one template, the row before the change first.
func (x *run) deletes(a *act) {
	if x.c.Op != event.Insert {
		x.delete(a, x.c.Before)
	}
	// Where no column of the template changed, both images make the same keys.
	if x.c.Op == event.Insert || x.c.Op == event.Update && !same(a.key.slots, x.c) {
		x.delete(a, x.c.After)
	}
}

// admit decides whether the mapping is for the change, and what an action that writes does with the after-image. An
// error says that the predicate could not be evaluated, which counts as true, and as a reason to write nothing.
func (x *run) admit() (verdict, error) {
	u, c := x.u, x.c
	switch {
	case !u.Events[c.Op&3]:
		return wrongEvent, nil
	case c.Op == event.Update && !u.all && !u.changed(c) && !x.turned():
		return unchanged, nil
	case u.predicate != nil:
		return x.asks()
	}
	x.after = event.IntentPut
	return admitted, nil
}

// turned reports whether the predicate may say something else of the row as it is than of the row as it was, each on
// its own: the row came to, or ceased to be, what the mapping is about, whichever of the columns it names changed. What
// cannot be evaluated may have turned.
func (x *run) turned() bool {
	u, c := x.u, x.c
	switch {
	case u.predicate == nil || !u.doubtful && same(u.reads, c):
		return false
	case u.doubtful:
		return true
	}
	was, err := u.predicate.alone(&x.machine, c.Before, u.reads)
	if err != nil {
		return true
	}
	is, err := u.predicate.alone(&x.machine, c.After, u.reads)
	return err != nil || was != is
}

// asks is admit for a mapping with a predicate.
func (x *run) asks() (verdict, error) {
	u := x.u
	x.after = event.IntentForget
	if u.doubtful {
		return admitted, errDoubtful
	}
	yes, err := u.predicate.eval(&x.machine, x.c, u.reads)
	if !u.Writes || err != nil {
		return verdictOf(yes), err
	}
	return x.membership(yes)
}

func verdictOf(yes bool) verdict {
	if yes {
		return admitted
	}
	return predicateFalse
}

// membership decides for a mapping that writes. What such a mapping keeps is the set of rows for which the predicate
// holds on their own, without an old row. The after-image is written only if it is one of them. And a row that was one
// and no longer is counts, though the predicate, which sees both images, is false: row.status == 'live' is false when a
// live row becomes a draft, and in every DELETE.
func (x *run) membership(yes bool) (verdict, error) {
	u, c := x.u, x.c
	x.after = event.IntentRemove
	var err error
	switch c.Op {
	case event.Insert: // the predicate saw the after-image alone
		if yes {
			x.after = event.IntentPut
		}
		return verdictOf(yes), nil
	case event.Update:
		var is bool
		if is, err = u.predicate.alone(&x.machine, c.After, u.reads); err != nil {
			x.after = event.IntentForget
		} else if is {
			x.after = event.IntentPut
		}
	}
	if yes || x.after == event.IntentPut {
		return verdictOf(yes), err
	}
	was, wrong := u.predicate.alone(&x.machine, c.Before, u.reads)
	return verdictOf(was || err != nil), errors.Join(err, wrong)
}

// changed reports whether a column that the mapping looks at may have changed.
func (u *rule) changed(c *event.Change) bool {
	for _, s := range u.compare {
		if !c.Before[s].Same(&c.After[s]) {
			return true
		}
	}
	return false
}

// same reports whether both images of a change surely hold the same in these columns.
func same(slots []int, c *event.Change) bool {
	for _, s := range slots {
		if !c.Before[s].Same(&c.After[s]) {
			return false
		}
	}
	return true
}

// maxText bounds the text of a batch, whose offsets have 32 bits. A reader hands a batch on long before, but between
// two rows: this is for the row of which thousands of copies of keys of the longest kind are made.
const maxText = 1 << 30

// delete makes the plain deletes of one template and one image: all copies, or none.
func (x *run) delete(a *act, image []event.Value) {
	b, k := x.b, a.key
	for i := range k.copies {
		text := b.Text()
		from := len(text)
		text, out, at := k.render(text, image, i)
		if out == made && len(text) > maxText {
			out = tooLong
		}
		if out != made {
			x.missed(a, k, out, at, image)
			return
		}
		if same := x.row.plain(b, text[from:]); same >= 0 {
			x.merge(a, image, same)
			continue
		}
		o := x.origin()
		b.Add(text, x.c.Version.Row, event.ActionDelete)
		b.Invalidations[b.Len()-1].Origin = o
		x.row.added(b)
		if x.trace != nil {
			x.trace.Added(x.step(a, image), "")
		}
	}
}

// merge gives an invalidation that another one is the same as the larger second delete of both.
func (x *run) merge(a *act, image []event.Value, same int) {
	if x.trace != nil {
		x.trace.Merged(x.step(a, image), same)
	}
	if x.b.Of(same).D < x.u.d {
		x.b.Invalidations[same].Origin = x.origin()
	}
}

// origin returns the index of the origin of the change's rows event under the rule, adding it if it is not there.
// Its place is remembered from row to row. The batch may have been emptied meanwhile, so that another origin, or
// none, stands there now; what is equal in all of these is the right one, no matter who added it.
func (x *run) origin() uint32 {
	b, u := x.b, x.u
	v := x.c.Version
	v.Row = 0
	if int(u.origin) < len(b.Origins) {
		if o := &b.Origins[u.origin]; o.Event == v {
			if c := &b.Commons[o.Common]; c.Mapping == u.Ordinal && c.Table == x.p.name {
				return u.origin
			}
		}
	}
	b.AddOrigin(event.Origin{
		Table: x.p.name, Tx: *x.c.Tx, Event: v, D: u.d, Mapping: u.Ordinal,
		RateLimit: u.Spec.RateLimit,
	})
	u.origin = uint32(len(b.Origins) - 1)
	return u.origin
}

// missed counts a key that was not made, because of the text k, and reports it unless that is in the nature of the
// data.
func (x *run) missed(a *act, k *textPlan, out outcome, at int, image []event.Value) {
	u := x.u
	switch out {
	case isNull:
		u.meters.null.Inc()
	case tooLong:
		u.meters.long.Inc()
		x.tell(KeyTooLong, a, k.long)
	case unnamed:
		// Bind has said why.
		u.meters.absent.Inc()
	default:
		u.meters.absent.Inc()
		x.tell(ColumnAbsent, a, k.parts[at].lacking)
	}
	if x.trace != nil {
		x.trace.Missed(x.step(a, image), k.why(out, at))
	}
}

// tell reports trouble with an action; nil: with a whole mapping.
func (x *run) tell(t Trouble, a *act, message string) {
	if x.report == nil {
		return
	}
	template := ""
	if a != nil {
		template = a.Key.Text.Value
	}
	x.report.Report(t, x.p.name, template, message)
}
