package schema

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
)

// maxTouches is how many statements that touch one table are kept while the binlog is looked through. After more than
// so many the table's columns are as good as unknown.
const maxTouches = 200

// history is what touched a table between a place of the binlog and its end, in order.
type history struct {
	actions []ddl.Action
	// lost says that there was more, or something that cannot be known.
	lost bool
}

func (h *history) add(a *ddl.Action) {
	if len(h.actions) == maxTouches {
		h.lost = true
	}
	if !h.lost {
		h.actions = append(h.actions, *a)
	}
}

// harmless reports whether an action leaves the columns of a table as they are, if it has any.
func harmless(a *ddl.Action) bool {
	switch a.Op {
	case ddl.OpWrite, ddl.OpTruncate:
		return true
	case ddl.OpAlter:
		return !a.Unclear && a.Alter.KeepsColumns()
	case ddl.OpCreate, ddl.OpCreateLike, ddl.OpCreateSchema:
		return a.If
	}
	return false
}

// before returns what the table n was before its history, from what it is now.
func (d *doubtful) before(n ddl.Name, t *Tracker) (status, *definition) {
	if d.lost {
		return doubt, nil
	}
	s, def := known, d.now
	switch {
	case d.unread != nil:
		s = doubt
	case def == nil:
		s = absent
	}
	for _, a := range slices.Backward(d.actions) {
		d.by = a.Op
		switch {
		case a.Unclear || a.If:
			return doubt, nil
		case a.Op == ddl.OpRename && t.key(a.To) == n, creates(a.Op) && !a.Replace:
			s, def = absent, nil
		case a.Op == ddl.OpAlter && s == known:
			if def = unalter(def, a.Alter); def == nil {
				return doubt, nil
			}
		default: // dropped, renamed, replaced: it was something else before
			return doubt, nil
		}
	}
	return s, def
}

// named returns those columns of what the table is now that were the same before its history, by the names that they
// had.
func (d *doubtful) named() *definition {
	out := &definition{}
	if d.now == nil || d.lost {
		return out
	}
	out.columns, out.rowEnd = slices.Clone(d.now.columns), d.now.rowEnd
	for _, a := range slices.Backward(d.actions) {
		if a.Unclear || a.If || a.Op != ddl.OpAlter || a.Alter.DropsVersioning && out.mayKeepTimes() {
			return &definition{}
		}
		out = out.unalterNamed(a.Alter)
	}
	return out
}

// unalterNamed returns those columns of d, which an ALTER TABLE has made, that it left alone or renamed.
func (d *definition) unalterNamed(a *ddl.Alter) *definition {
	out := &definition{rowEnd: d.rowEnd}
	switch {
	case a.AddsVersioning:
		out.rowEnd = ""
	case a.DropsVersioning:
		out.rowEnd = hiddenRowEnd
	}
	for _, c := range d.columns {
		name, same := c.name, true
		for i := range a.Clauses {
			switch l := &a.Clauses[i]; {
			case l.Kind == ddl.DropColumn:
				// If it has the name of c, c is another column: one that was added, or renamed.
			case l.Kind == ddl.AddColumn && l.If:
				// If it has the name of c, that was there as it is now, or was not there.
			case !strings.EqualFold(l.Column.Name, c.name):
			case l.Kind == ddl.RenameColumn && !l.If:
				name = l.Old
			default:
				same = false
			}
		}
		if same {
			c.name = name
			out.columns = append(out.columns, c)
		}
	}
	return out
}

func creates(o ddl.Op) bool {
	return o == ddl.OpCreate || o == ddl.OpCreateLike || o == ddl.OpCreateSchema
}

// unalter returns the definition before an ALTER TABLE whose result is d, nil if that cannot be known. Columns that
// were added go, those that were renamed get their names back; the others keep their order under either. What a column
// was that was dropped, changed or converted is not known.
func unalter(d *definition, a *ddl.Alter) *definition {
	if a.Convert || a.DropsVersioning && d.mayKeepTimes() {
		return nil
	}
	out := &definition{columns: slices.Clone(d.columns), charset: d.charset, rowEnd: d.rowEnd}
	switch {
	case a.AddsVersioning:
		out.rowEnd = ""
	case a.DropsVersioning:
		out.rowEnd = hiddenRowEnd
	}
	if !a.Charset.IsZero() {
		out.charset = charsets{}
	}
	for _, c := range a.Clauses {
		if c.If || c.Kind != ddl.AddColumn && c.Kind != ddl.RenameColumn {
			return nil
		}
		if c.Kind == ddl.AddColumn {
			i := out.find(c.Column.Name)
			if i < 0 {
				return nil
			}
			out.columns = slices.Delete(out.columns, i, i+1)
		}
	}
	// All renames of one statement happen at once: RENAME a TO b, RENAME b TO a.
	names := make(map[int]string)
	for _, c := range a.Clauses {
		if c.Kind != ddl.RenameColumn {
			continue
		}
		i := out.find(c.Column.Name)
		if i < 0 || names[i] != "" {
			return nil
		}
		names[i] = c.Old
	}
	for i, name := range names {
		out.columns[i].name = name
	}
	if d.rowEnd != "" && out.rowEnd != "" && d.hides() != out.hides() {
		return nil
	}
	if len(out.columns) == 0 || out.ambiguous() {
		return nil
	}
	return out
}

// mayKeepTimes reports whether the columns may hold those of a versioning that was dropped, which stay where the table
// named them itself. Otherwise the table had them by itself.
func (d *definition) mayKeepTimes() bool {
	return slices.ContainsFunc(d.columns, func(c column) bool {
		return strings.HasPrefix(c.typ, "timestamp") || strings.HasPrefix(c.typ, "bigint") &&
			strings.HasSuffix(c.typ, "unsigned")
	})
}
