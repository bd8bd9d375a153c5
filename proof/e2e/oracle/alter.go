package oracle

import (
	"context"
	"fmt"
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

// all runs statements until one fails.
func (w *World) all(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if err := w.do(ctx, 0, s); err != nil {
			return err
		}
	}
	return nil
}

// alter changes a table's definition. Its triggers are made again, for its columns as they are then.
func (w *World) alter(ctx context.Context, t *table) error {
	if err := w.all(ctx, t.untrigger()...); err != nil {
		return err
	}
	clause, columns := w.clause(t)
	if w.do(ctx, 0, "ALTER TABLE "+t.full()+" "+clause) == nil {
		t.columns = columns
		w.doubted[t.schema+"."+t.name] = true // it may change values, and logs no rows for that
	}
	w.remember(t)
	return w.all(ctx, t.triggers()...)
}

// elsewhere is the name of a table on its way from one name to another.
const elsewhere = "away from here"

// replaceTable takes a table's rows away in a way that is documented to leave a doubt. What changes later is as ever.
func (w *World) replaceTable(ctx context.Context, t *table) error {
	w.doubted[t.schema+"."+t.name], w.doubted[t.schema+"."+elsewhere] = true, true
	switch w.r.IntN(4) {
	case 0:
		_ = w.do(ctx, 0, "TRUNCATE TABLE "+t.full()) // not where rows have history
		return nil
	case 1:
		away := quote(t.schema) + "." + quote(elsewhere)
		return w.all(ctx, "RENAME TABLE "+t.full()+" TO "+away, "ALTER TABLE "+away+" RENAME TO "+t.full())
	case 2:
		if w.keepTables {
			return nil
		}
		t.columns = slices.Clone(t.columns)
		w.r.Shuffle(len(t.columns), func(i, j int) { t.columns[i], t.columns[j] = t.columns[j], t.columns[i] })
		w.remember(t)
		return w.all(ctx, append([]string{"DROP TABLE " + t.full(), t.create()}, t.triggers()...)...)
	}
	return w.swap(ctx, t)
}

// swap exchanges the names of two tables of the same family, which ALTER may have made different.
func (w *World) swap(ctx context.Context, t *table) error {
	i := slices.IndexFunc(w.families, func(f []*table) bool { return slices.Contains(f, t) })
	if len(w.families[i]) < 2 {
		return nil
	}
	a, b, away := w.families[i][0], w.families[i][1], quote(t.schema)+"."+quote(elsewhere)
	w.doubted[a.schema+"."+a.name], w.doubted[b.schema+"."+b.name] = true, true
	statements := append(a.untrigger(), b.untrigger()...)
	statements = append(statements,
		fmt.Sprintf("RENAME TABLE %[1]s TO %[3]s, %[2]s TO %[1]s, %[3]s TO %[2]s", a.full(), b.full(), away))
	a.columns, b.columns = b.columns, a.columns
	w.remember(a)
	w.remember(b)
	return w.all(ctx, append(append(statements, a.triggers()...), b.triggers()...)...)
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
	convert := "CONVERT TO CHARACTER SET utf8mb4"
	if w.mariaDB && slices.ContainsFunc(columns, (*column).lists) {
		convert = "COMMENT='CONVERT TO CHARACTER SET utf8mb4'"
	}
	return pick(r, "COMMENT='ADD x INT, (DROP y'", "FORCE", "ADD INDEX more ("+quote(t.key.name)+")", convert,
		"AUTO_INCREMENT = 50"), columns
}

// lists reports whether its type lists texts of one byte each. Without a strict mode MariaDB changes only the character
// set of such a type when it converts a table, not the bytes: clients read them, and a trigger can read a ? only.
func (c *column) lists() bool {
	return strings.HasPrefix(c.sql, "ENUM(") && strings.HasSuffix(c.sql, "CHARACTER SET latin1")
}
