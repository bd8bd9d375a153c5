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

// label is the verdict's value of the metric label `by`.
func (v verdict) label() string {
	return [...]string{"events", "columns", "when", "none"}[v]
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
	for i := range p.rules {
		r.rule(b, c, p, &p.rules[i])
	}
}

func (r *Router) rule(b *event.Batch, c *event.Change, p *plan, u *rule) {
	u.counts.rows.Inc()
	v, err := u.admit(r, c)
	if err != nil {
		u.counts.failed.Inc()
		r.tell(PredicateFailed, u.failed)
	}
	if v != admitted {
		u.counts.filtered[v].Inc()
		return
	}
	from := b.Len()
	for i := range u.keys {
		k := &u.keys[i]
		if c.Op != event.Insert {
			r.key(b, c, p, u, k, c.Before)
		}
		// Where no column of the template changed, both images make the same keys.
		if c.Op == event.Insert || c.Op == event.Update && !k.same(c) {
			r.key(b, c, p, u, k, c.After)
		}
	}
	if n := b.Len() - from; n > 0 {
		u.counts.keys.Add(float64(n))
	}
}

// admit decides whether the mapping is for the change. An error says that the predicate could not be evaluated,
// which counts as true.
func (u *rule) admit(r *Router, c *event.Change) (verdict, error) {
	switch {
	case !u.events[c.Op&3]:
		return wrongEvent, nil
	case c.Op == event.Update && !u.all && !u.changed(c):
		return unchanged, nil
	case u.predicate == nil:
		return admitted, nil
	case u.doubtful:
		return admitted, errDoubtful
	}
	yes, err := u.predicate.eval(&r.machine, c, u.reads)
	if !yes {
		return predicateFalse, nil
	}
	return admitted, err
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

// same reports whether the template makes the same of both images.
func (k *keyPlan) same(c *event.Change) bool {
	for _, s := range k.slots {
		if !c.Before[s].Same(&c.After[s]) {
			return false
		}
	}
	return true
}

// maxText bounds the text of a batch, whose offsets have 32 bits. A reader hands a batch on long before, but between
// two rows: this is for the row of which thousands of copies of keys of the longest kind are made.
const maxText = 1 << 30

// key adds the keys that one template makes of one image: all copies, or none.
func (r *Router) key(b *event.Batch, c *event.Change, p *plan, u *rule, k *keyPlan, image []event.Value) {
	for i := range k.copies {
		text := b.Text()
		from := len(text)
		text, out, at := k.render(text, image, i)
		if out == made && len(text) > maxText {
			out = tooLong
		}
		if out != made {
			r.missed(u, k, out, at)
			return
		}
		if same := r.row.find(b, text[from:]); same >= 0 {
			if b.Origins[b.Invalidations[same].Origin].D < u.d {
				b.Invalidations[same].Origin = u.originIn(b, c, p)
			}
			continue
		}
		o := u.originIn(b, c, p)
		b.Add(text, c.Version.Row, event.ActionDelete)
		b.Invalidations[b.Len()-1].Origin = o
		r.row.added(b)
	}
}

// originIn returns the index of the origin of the change's rows event under the rule, adding it if it is not there.
// Its place is remembered from row to row. The batch may have been emptied meanwhile, so that another origin, or
// none, stands there now; what is equal in all of these is the right one, whoever added it.
func (u *rule) originIn(b *event.Batch, c *event.Change, p *plan) uint32 {
	v := c.Version
	v.Row = 0
	if int(u.origin) < len(b.Origins) {
		if o := &b.Origins[u.origin]; o.Event == v && o.Mapping == u.ordinal && o.Table == p.name {
			return u.origin
		}
	}
	b.AddOrigin(event.Origin{Table: p.name, Tx: *c.Tx, Event: v, D: u.d, Mapping: u.ordinal})
	u.origin = uint32(len(b.Origins) - 1)
	return u.origin
}

// missed counts a key that was not made, and reports it unless that is in the nature of the data.
func (r *Router) missed(u *rule, k *keyPlan, out outcome, at int) {
	switch out {
	case isNull:
		u.counts.null.Inc()
	case tooLong:
		u.counts.long.Inc()
		r.tell(KeyTooLong, k.long)
	case unnamed:
		// Bind has told why.
		u.counts.absent.Inc()
	default:
		u.counts.absent.Inc()
		r.tell(ColumnAbsent, k.parts[at].lacking)
	}
}

func (r *Router) tell(t Trouble, message string) {
	if r.report != nil {
		r.report.Report(t, message)
	}
}

// outcome says what became of a key.
type outcome uint8

const (
	made outcome = iota
	// isNull: a column is NULL, and no default stands for it.
	isNull
	// isAbsent: the image lacks a column, or holds no text for it.
	isAbsent
	// notNumber: mod was asked of a text whose type was not known before.
	notNumber
	tooLong
	// unnamed: the template is broken.
	unnamed
)

// render appends a key to dst: the template over one image, copy i of all. On any other outcome than made it says
// which part was the reason, and what dst holds beyond its former end means nothing.
func (k *keyPlan) render(dst []byte, image []event.Value, i int) ([]byte, outcome, int) {
	if k.broken {
		return dst, unnamed, 0
	}
	from := len(dst)
	for at := range k.parts {
		p := &k.parts[at]
		switch p.kind {
		case nodeLiteral:
			dst = append(dst, p.lit...)
		case nodeCopies:
			dst = p.span.append(dst, i/p.stride%p.span.count())
		default:
			var out outcome
			if dst, out = p.value(dst, &image[p.slot]); out != made {
				return dst, out, at
			}
		}
		if len(dst)-from > MaxKey {
			return dst, tooLong, at
		}
	}
	return dst, made, 0
}

// value appends a column's text as the filters make it.
func (p *part) value(dst []byte, v *event.Value) ([]byte, outcome) {
	start, steps, ok := len(dst), p.filters, true
	switch v.Kind {
	case event.Null:
		if !p.nullable {
			return dst, isNull
		}
		dst, steps = append(dst, p.fallback...), steps[p.after:]
	case event.Int, event.Uint:
		dst = v.AppendText(dst)
	case event.Decimal, event.Text, event.Bytes:
		if len(steps) == 0 {
			// Before the copy: the value may be far larger than any key.
			if len(v.Text) > MaxKey {
				return dst, tooLong
			}
			return append(dst, v.Text...), made
		}
		// The first filter reads the value where it is, so that a digest of a large one costs no memory.
		if dst, ok = steps[0](dst, v.Text); !ok {
			return dst, notNumber
		}
		steps = steps[1:]
	default:
		return dst, isAbsent
	}
	if dst, ok = chain(dst, start, steps); !ok {
		return dst, notNumber
	}
	return dst, made
}
