package oracle

import (
	"maps"
	"slices"
	"strings"
)

// leftOut is what is known of a server that leaves the columns that it makes out of row images.
type leftOut struct {
	does bool
	// owed are the tables of which a doubt must tell: a key that had to be deleted could not be named.
	owed map[string]bool
}

// LeaveOut says that the server leaves the columns that it makes out of row images (docs/versions.md). A key that needs
// one cannot be named, and must be in doubt.
func (w *World) LeaveOut() { w.leftOut = leftOut{true, map[string]bool{}} }

// MayLack reports whether row images of a table may lack a column that a key needs.
func (w *World) MayLack(name string) bool {
	return slices.ContainsFunc(w.versions, func(t *table) bool {
		return t.schema+"."+t.name == name && slices.ContainsFunc(w.mappings, func(m *mapping) bool {
			return slices.ContainsFunc(m.keys, func(k template) bool { return w.lacks(t, k.needs()) })
		})
	})
}

// Owed returns the tables about which a doubt must have been recorded since its last call. It is called after
// [World.Expect].
func (w *World) Owed() []string {
	all := slices.Sorted(maps.Keys(w.leftOut.owed))
	clear(w.leftOut.owed)
	return all
}

// lacks reports whether row images of a table lack one of the columns.
func (w *World) lacks(t *table, needs []*column) bool {
	return w.leftOut.does && slices.ContainsFunc(t.columns, func(c *column) bool {
		return c.generated && slices.ContainsFunc(needs, func(n *column) bool { return strings.EqualFold(n.name, c.name) })
	})
}

// open is the verdict on a change of which a mapping does not get all that it asks for: it may count.
func (w *World) open(m *mapping, c *change, v verdict) verdict {
	var asked []*column
	if m.when != nil {
		asked = append(asked, m.when.of...)
	}
	if m.columns != nil {
		asked = append(asked, m.counting()...)
	}
	if m.takes(c.op) && w.lacks(c.of, asked) {
		return max(v, perhaps)
	}
	return v
}

// unnamed is the verdict on the keys of a template. One that must be deleted and cannot be named is owed a doubt. Only
// an INSERT may have all columns.
func (w *World) unnamed(k template, c *change, v verdict) verdict {
	if !w.lacks(c.of, k.needs()) {
		return v
	}
	if v == yes && c.op != "INSERT" && (k.keys(c.of, c.old) != nil || c.after != nil && k.keys(c.of, c.after) != nil) {
		w.leftOut.owed[c.of.schema+"."+c.of.name] = true
	}
	return min(v, perhaps)
}

// needs are the columns of the template.
func (t template) needs() (all []*column) {
	for _, p := range t {
		if p.of != nil {
			all = append(all, p.of)
		}
	}
	return all
}
