package router

import (
	"unsafe"

	"github.com/freshet/freshet/event"
)

// maxPlanBytes bounds the memory of the plans that are kept, as [plan.weigh] estimates it.
const maxPlanBytes = 32 << 20

// plans are what Bind compiled: of each table that of its newest definition, since rows under an older one do not come
// any more. It is a cache: compiling again gives the same plan, so it is emptied when it has grown too large.
type plans struct {
	of map[*event.Table]*plan
	// newest are the definitions in of, by the table's name.
	newest map[tableName]*event.Table
	// bytes is what the plans weigh.
	bytes int
}

func newPlans() plans {
	return plans{of: map[*event.Table]*plan{}, newest: map[tableName]*event.Table{}}
}

// keep adds a plan, in the place of the one for the table's definition before.
func (ps *plans) keep(t *event.Table, p *plan) {
	name := tableName{t.Schema, t.Name}
	if old := ps.newest[name]; old != nil {
		ps.bytes -= ps.of[old].bytes
		delete(ps.of, old)
	}
	p.bytes = p.weigh()
	if ps.bytes+p.bytes > maxPlanBytes {
		clear(ps.of)
		clear(ps.newest)
		ps.bytes = 0
	}
	ps.of[t], ps.newest[name] = p, t
	ps.bytes += p.bytes
}

// weigh estimates how many bytes the plan and its definition take.
func (p *plan) weigh() int {
	n := 1024 + len(p.needs)*int(unsafe.Sizeof(event.Need{}))
	for i := range p.table.Columns {
		c := &p.table.Columns[i]
		n += int(unsafe.Sizeof(*c)) + len(c.Name) + len(c.Type)
	}
	for i := range p.rules {
		u := &p.rules[i]
		n += int(unsafe.Sizeof(*u)) + len(u.failed) + 8*(len(u.compare)+len(u.reads)) + weighActs(u.plain) +
			weighActs(u.counters)
		for _, acts := range u.effects {
			n += weighActs(acts)
		}
	}
	return n
}

func weighActs(acts []act) int {
	n := 0
	for i := range acts {
		a := &acts[i]
		n += int(unsafe.Sizeof(*a)) + len(a.unfit) + 8*len(a.identity)
		for _, k := range []*textPlan{a.key, a.field, a.value, a.channel, a.message, a.stream} {
			n += k.weigh()
		}
		n += a.row.weigh()
	}
	return n
}

func (k *textPlan) weigh() int {
	if k == nil {
		return 0
	}
	n := int(unsafe.Sizeof(*k)) + len(k.long) + len(k.lost) + 8*len(k.slots)
	for i := range k.parts {
		p := &k.parts[i]
		n += int(unsafe.Sizeof(*p)) + len(p.lit) + len(p.fallback) + len(p.lacking) + 64*len(p.filters)
	}
	return n
}

func (r *rowPlan) weigh() int {
	if r == nil {
		return 0
	}
	n := int(unsafe.Sizeof(*r)) + len(r.large)
	for i, c := range r.columns {
		// The document holds the name twice, once as it stands in JSON.
		n += 96 + 2*len(c.Name) + len(r.lacking[i])
	}
	return n
}
