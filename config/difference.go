package config

import (
	"maps"
	"slices"

	"github.com/freshet/freshet/config/spec"
)

// Difference is what mappings say that others did not.
type Difference struct {
	// Changed are the templates that are new, or that other changes of rows concern than before, or whose values are
	// written in another way.
	Changed []string
	// Gone are the templates that no mapping of a table has any more, by the table of the mapping as it was written.
	Gone map[string][]string
}

// DifferenceOf compares mappings with those of before. The second delete does not count: it says when, not what; nor
// does what is published or streamed, which is not cached.
func DifferenceOf(former, now []spec.Mapping) *Difference {
	was, is := one(former), one(now)
	d := &Difference{Gone: map[string][]string{}}
	there := map[single]bool{}
	for meaning, s := range is {
		there[s] = true
		if _, known := was[meaning]; !known {
			d.Changed = append(d.Changed, s.template)
		}
	}
	for meaning, s := range was {
		switch _, still := is[meaning]; {
		case still:
		case there[s]: // by another mapping of the table, for other changes
			d.Changed = append(d.Changed, s.template)
		default:
			d.Gone[s.table] = append(d.Gone[s.table], s.template)
		}
	}
	slices.Sort(d.Changed)
	d.Changed = slices.Compact(d.Changed)
	for table, templates := range d.Gone {
		slices.Sort(templates)
		d.Gone[table] = slices.Compact(templates)
	}
	return d
}

// Tables returns the tables of Gone, in order.
func (d *Difference) Tables() []string { return slices.Sorted(maps.Keys(d.Gone)) }

// single is a template of a table.
type single struct{ table, template string }

// one returns the templates of mappings, each by its meaning: that of a mapping which has nothing else.
func one(mappings []spec.Mapping) map[string]single {
	all := map[string]single{}
	for _, m := range mappings {
		bare := spec.Mapping{Table: m.Table, Events: m.Events, Columns: m.Columns, When: m.When}
		add := func(key string, only spec.Mapping) { all[canonical(&only)] = single{m.Table.Value, key} }
		for _, k := range m.Keys {
			only := bare
			only.Keys, only.Rebuild = []spec.Text{k}, m.Rebuild
			add(k.Value, only)
		}
		if m.Hash != nil {
			only := bare
			only.Hash = m.Hash
			add(m.Hash.Key.Value, only)
		}
		if m.Set != nil {
			only := bare
			only.Set = m.Set
			add(m.Set.Key.Value, only)
		}
		if m.ZSet != nil {
			only := bare
			only.ZSet = m.ZSet
			add(m.ZSet.Key.Value, only)
		}
		if m.Expire != nil {
			for _, k := range m.Expire.Keys {
				only := bare
				only.Expire = &spec.Expire{Keys: []spec.Text{k}, In: m.Expire.In}
				add(k.Value, only)
			}
		}
		if m.Incr.Value != "" {
			only := bare
			only.Incr = m.Incr
			add(m.Incr.Value, only)
		}
	}
	return all
}
