package oracle

import (
	"context"
	"slices"
	"strings"
)

// mapped reports whether a mapping needs a column of a table.
func (w *World) mapped(t *table, c *column) bool {
	for _, m := range w.mappings {
		if !slices.ContainsFunc(m.tables, func(o *table) bool { return o.name == t.name }) {
			continue
		}
		needs := m.counting()
		if m.when != nil {
			needs = append(needs, m.when.of...)
		}
		if slices.ContainsFunc(needs, func(o *column) bool { return strings.EqualFold(o.name, c.name) }) {
			return true
		}
	}
	return false
}

// alter changes a table's definition. Its triggers are made again, for its columns as they are then.
func (w *World) alter(ctx context.Context, t *table) error {
	for _, s := range t.untrigger() {
		if err := w.do(ctx, 0, s); err != nil {
			return err
		}
	}
	clause, columns := w.clause(t)
	if w.do(ctx, 0, "ALTER TABLE "+t.full()+" "+clause) == nil {
		t.columns = columns
	}
	w.remember(t)
	for _, s := range t.triggers() {
		if err := w.do(ctx, 0, s); err != nil {
			return err
		}
	}
	return nil
}

// clause draws what is done to a table, and returns its columns as they are then.
func (w *World) clause(t *table) (string, []*column) {
	r := w.r
	columns := slices.Clone(t.columns)
	i := r.IntN(len(columns))
	c := columns[i]
	free := c != t.key && !c.generated && !w.mapped(t, c)
	switch n := r.IntN(8); {
	case n < 2 || n < 4 && !free:
		added := w.column(pick(r, "added", "Zusatz ß", "first", "after", "x y", "k`k"), nil)
		if oneIn(r, 3) {
			return "ADD COLUMN " + added.definition() + " FIRST", slices.Insert(columns, 0, added)
		}
		return "ADD COLUMN " + added.definition() + " AFTER " + quote(c.name), slices.Insert(columns, i+1, added)
	case n == 2:
		return "DROP COLUMN " + quote(c.name), slices.Delete(columns, i, i+1)
	case n == 3:
		other := w.column(pick(r, c.name, "renamed", "Ä b"), nil)
		columns[i] = other
		return "CHANGE COLUMN " + quote(c.name) + " " + other.definition(), columns
	case n == 4 && c != t.key && !c.generated:
		columns = slices.Insert(slices.Delete(columns, i, i+1), 0, c)
		return "MODIFY COLUMN " + c.definition() + " FIRST", columns
	case n == 5 && c.sql == "INT":
		wider := *c
		wider.sql = "BIGINT"
		if c != t.key {
			columns[i] = &wider
			return "MODIFY COLUMN " + wider.definition(), columns
		}
	case n == 6 && free:
		renamed := *c
		renamed.name = "other name"
		columns[i] = &renamed
		return "RENAME COLUMN " + quote(c.name) + " TO `other name`", columns
	}
	return pick(r, "COMMENT='ADD x INT, (DROP y'", "FORCE", "ADD INDEX more ("+quote(t.key.name)+")", "CONVERT TO CHARACTER SET utf8mb4", "AUTO_INCREMENT = 50"), columns
}
