package router

import "github.com/freshet/freshet/event"

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

// effects makes the invalidations of actions that share an effect: those of all keys of a mapping. The row after the
// change comes first, for all of them: what it holds is written where a key, field or member of the row before the
// change would be removed, also if another template made that one.
func (x *run) effects(acts []act) {
	if x.c.Op != event.Delete {
		for i := range acts {
			x.image(&acts[i], x.c.After, x.intent(&acts[i], false))
		}
	}
	for i := range acts {
		if a := &acts[i]; x.c.Op == event.Delete || x.c.Op == event.Update && !same(a.identity, x.c) {
			x.image(a, x.c.Before, x.intent(a, true))
		}
	}
}

// intent says what the action does for an image, if nothing is in doubt.
func (x *run) intent(a *act, old bool) event.Intent {
	switch {
	case !a.Writes():
		return event.IntentForget
	case a.Effect.Query != "":
		return event.IntentPut // what there is now is for the query to say
	case old:
		return event.IntentRemove
	case a.Kind == event.ActionZSet && a.value == nil && x.after == event.IntentPut:
		// The row is there, and its score is not known: with the member taken out, the board would lack it.
		return event.IntentForget
	}
	return x.after
}

// image makes the invalidations of one image: those of all copies of the key, or none.
func (x *run) image(a *act, image []event.Value, intent event.Intent) {
	f := filling{action: a.Kind, intent: intent, effect: a.Effect, fields: x.fill.fields[:0]}
	if a.Kind == event.ActionHash && a.value == nil {
		f.effect = nil // the field is only ever removed: that commutes, and without an effect it is not guarded
	}
	if a.Writes() && intent == event.IntentForget && (a.Kind != event.ActionZSet || a.value != nil) {
		f.doubt(inDoubt, PredicateFailed, "") // admit has said it
	}
	if !x.complete(&f, a, image) {
		return
	}
	any := false
	for i := range a.key.copies {
		text := x.b.Text()
		from := len(text)
		text, out, at := a.key.render(text, image, i)
		key := len(text) - from
		if out == made && len(text)+len(f.fields) > maxText {
			out = tooLong
		}
		if out != made {
			x.missed(a, a.key, out, at, image)
			break
		}
		text = append(text, f.fields...)
		d := &identity{action: f.action, effect: f.effect, key: text[from : from+key], mark: f.fields[:f.mark]}
		if a.Kind == event.ActionIncr && x.once.has(d.key, x.u.d) {
			continue
		}
		if same := x.row.find(x.b, d); same >= 0 {
			x.merge(a, image, same)
			continue
		}
		o := x.origin()
		x.b.AddItem(event.Item{
			Text: text, Key: key, Row: x.c.Version.Row, Action: f.action, Intent: f.intent,
			Effect: f.effect,
		})
		x.b.Invalidations[x.b.Len()-1].Origin = o
		x.row.added(x.b)
		if x.trace != nil {
			x.trace.Added(x.step(a, image), f.doubtLabel())
		}
		any = true
	}
	if any && f.doubted {
		x.u.meters.forgotten[f.why].Inc()
		if f.told != "" {
			x.tell(f.trouble, a, f.told)
		}
	}
	x.fill.fields = f.fields
	x.fill.trim()
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

// step is an action over an image, as a tracer is given it.
func (x *run) step(a *act, image []event.Value) Step {
	old := x.c.Op == event.Update && len(image) > 0 && &image[0] == &x.c.Before[0] && !same(a.identity, x.c)
	return Step{Mapping: x.u.Mapping, Action: a.Action, Old: old}
}
