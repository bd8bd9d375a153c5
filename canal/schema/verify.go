package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/retry"
)

const (
	// bulk is how many tables one question is about.
	bulk = 100
	// maxAsked is how often tables are asked for that are being altered at the time.
	maxAsked = 3
)

// Verify compares what is known with what the server says, at the present place of the stream, at, which is as that of
// [Tracker.Resolve]. What is known must become what the server says now by the statements that stand in the binlog
// between that place and its end. If it does not, the table was altered by a statement that stands in no binlog that
// was read. found is then called with the table's name and what differs, before anything is taken over; its error is
// returned. From then on the table is known as what it was at the place, or, if that is not known, it is in doubt.
//
// With named the names of columns come with the events: only columns count of which the binlog does not say all then.
// Tables that the server does not show, or that may not be read, are left as they are. Those that are locked are due
// for [Tracker.VerifyMapped].
func (t *Tracker) Verify(ctx context.Context, conn Conn, scan Scanner, at BinlogPos, named bool,
	found func(n ddl.Name, how string) error,
) error {
	locked, err := t.verify(ctx, conn, scan, at, named, func(*entry) bool { return true }, found)
	for e := range locked {
		e.due, e.named = true, named
	}
	return err
}

// Mapped takes note of a TABLE_MAP, and reports whether the known definition must be compared with the server's before
// the rows under it can be relied on: whether it has another id than when that was last done. Whatever statement alters
// a table, it has another id from then on, whether it is in the binlog or not. It also has when the server has only
// opened it again, so another id says nothing but that it is time to look.
func (t *Tracker) Mapped(m *binlog.TableMap) bool {
	e := t.tables[t.key(ddl.Name{Schema: m.Schema, Table: m.Name})]
	if e == nil || !e.comparable(m.HasNames) {
		return false
	}
	if e.id != m.ID || e.named != m.HasNames {
		e.mapped = mapped{m.ID, m.HasNames, true}
	}
	return e.due
}

// VerifyMapped is [Tracker.Verify] of the tables for which [Tracker.Mapped] has said so, or of the one that m describes
// only.
func (t *Tracker) VerifyMapped(ctx context.Context, conn Conn, scan Scanner, at BinlogPos, m *binlog.TableMap,
	found func(n ddl.Name, how string) error,
) error {
	var mine *entry
	if m != nil {
		mine = t.tables[t.key(ddl.Name{Schema: m.Schema, Table: m.Name})]
	}
	for _, named := range []bool{false, true} {
		of := func(e *entry) bool { return e.due && e.named == named && (m == nil || e == mine) }
		var done []*entry
		for _, e := range t.tables {
			if of(e) {
				done = append(done, e)
			}
		}
		if len(done) == 0 {
			continue
		}
		locked, err := t.verify(ctx, conn, scan, at, named, of, found)
		if err != nil {
			return err
		}
		for _, e := range done {
			e.due = locked[e]
		}
	}
	return nil
}

// Due reports whether a table is due for [Tracker.VerifyMapped].
func (t *Tracker) Due() bool {
	for _, e := range t.tables {
		if e.due {
			return true
		}
	}
	return false
}

func (t *Tracker) verify(ctx context.Context, conn Conn, scan Scanner, at BinlogPos, named bool, of func(*entry) bool,
	found func(n ddl.Name, how string) error,
) (locked map[*entry]bool, err error) {
	l, err := newLoader(ctx, conn)
	if err != nil {
		return nil, err
	}
	v := verification{resolution: resolution{t: t, at: at, named: named}, l: l, of: of, locked: map[*entry]bool{}}
	suspects, err := v.suspects()
	if err != nil || len(suspects) == 0 {
		return v.locked, err
	}
	if err := v.ask(suspects); err != nil || len(v.tables) == 0 {
		return v.locked, err
	}
	changed := t.changed // since it was saved, which it is not here
	if v.then, err = Decode(t.Encode(), t.o); err != nil {
		return nil, err
	}
	t.changed = changed
	if err := v.look(ctx, v.follow(scan)); err != nil {
		return nil, err
	}
	for _, n := range suspects {
		if d := v.tables[n]; d != nil {
			if err := v.judge(n, d, found); err != nil {
				return nil, err
			}
		}
	}
	return v.locked, nil
}

// verification is a resolution of tables that are known, and differ from what the server says now.
type verification struct {
	resolution
	l *loader
	// of says which tables it is about.
	of func(*entry) bool
	// locked are those of them that could not be compared, because they are locked.
	locked map[*entry]bool
	// then is what becomes of what is known, up to the end of the binlog.
	then *Tracker
}

// comparable reports whether enough is known to be compared with what the server says.
func (e *entry) comparable(named bool) bool { return e.status == known || e.status == partial && named }

// suspects returns the tables that are known as something else than they are now.
func (v *verification) suspects() ([]ddl.Name, error) {
	of := map[string][]ddl.Name{}
	for n, e := range v.t.tables {
		if e.comparable(v.named) && v.of(e) {
			of[n.Schema] = append(of[n.Schema], n)
		}
	}
	var out []ddl.Name
	for _, schema := range sortedKeys(of, strings.Compare) {
		for names := of[schema]; len(names) > 0; {
			some := names[:min(bulk, len(names))]
			names = names[len(some):]
			now, err := v.l.definitions(schema, some)
			if err != nil {
				return nil, err
			}
			for name, d := range now {
				n := v.t.key(ddl.Name{Schema: schema, Table: name})
				switch e := v.t.tables[n]; {
				case e == nil || e.def == nil:
				case len(d.columns) > 0:
					if v.difference(e, d) != "" {
						out = append(out, n)
					}
				case d.charset == charsets{} && v.t.o.MariaDB:
					v.locked[e] = true
				}
			}
		}
	}
	return out, nil
}

// difference says how a table differs from what is known of it, "" if it does not.
func (v *verification) difference(e *entry, d *definition) string {
	if v.named {
		return unnamedDifference(e.def, d, e.status == partial, v.t.o.MariaDB)
	}
	return difference(e.def, d, v.t.o.MariaDB)
}

// ask asks for tables, and then for the end of the binlog. No ALTER TABLE came in between if they are the same
// afterwards.
func (v *verification) ask(suspects []ddl.Name) error {
	before, err := v.read(suspects)
	if err == nil && len(before) == 0 {
		return nil
	}
	for range maxAsked {
		if err != nil {
			return err
		}
		if v.end, err = v.l.end(); err != nil {
			return err
		}
		var after map[ddl.Name]*doubtful
		if after, err = v.read(suspects); err == nil && reflect.DeepEqual(before, after) {
			v.tables = after
			return nil
		}
		before = after
	}
	return cmp.Or(err, errors.New("schema: tables are altered each time that they are asked for"))
}

// read asks for tables, and leaves out those that are not there, or may not be read, or are locked.
func (v *verification) read(names []ddl.Name) (map[ddl.Name]*doubtful, error) {
	out := make(map[ddl.Name]*doubtful, len(names))
	for _, n := range names {
		d, err := v.l.table(n)
		if retry.IsTableDenied(err) {
			continue
		}
		if retry.IsLockWait(err) {
			v.locked[v.t.tables[n]] = true
			continue
		}
		if err != nil {
			return nil, err
		}
		if d != nil {
			out[n] = &doubtful{now: d}
		}
	}
	return out, nil
}

// follower has a tracker follow the statements that are looked through.
type follower struct {
	Scanner
	then *Tracker
}

func (v *verification) follow(scan Scanner) Scanner { return follower{scan, v.then} }

// DDLBetween implements [Scanner].
func (f follower) DDLBetween(ctx context.Context, from, to BinlogPos, touches func(ddl.Statement) bool) (bool, error) {
	return f.Scanner.DDLBetween(ctx, from, to, func(st ddl.Statement) bool {
		f.then.Apply(&st)
		return touches(st)
	})
}

// judge takes over what a table was at the place, if the statements to come do not explain what it is now.
func (v *verification) judge(n ddl.Name, d *doubtful, found func(n ddl.Name, how string) error) error {
	e, then := v.t.get(n), v.then.get(n)
	follows := then.status == known || then.status == partial
	if follows && v.difference(&then, d.now) == "" {
		return nil
	}
	s, was := d.before(n, v.t)
	if s == known {
		if how := v.difference(&e, was); how != "" {
			if err := found(n, how); err != nil {
				return err
			}
			v.t.set(n, entry{status: known, def: was})
			return nil
		}
	}
	if !follows {
		return nil // what lies ahead explains it, for all that can be said
	}
	if err := found(n, v.difference(&then, d.now)); err != nil {
		return err
	}
	v.t.doubt(n)
	return nil
}

// difference says how what is known differs from the actual definition, "" if it does not. Spellings of types that mean
// the same are the same; a character set that is not known is no difference, nor is a collation.
func difference(known, actual *definition, mariaDB bool) string {
	k, a := known.withoutOwnKey(), actual.withoutOwnKey()
	if len(k) != len(a) {
		return fmt.Sprintf("%d columns, actually %d", len(k), len(a))
	}
	for i := range k {
		switch k, a := &k[i], &a[i]; {
		case !strings.EqualFold(k.name, a.name):
			return fmt.Sprintf("column %d is %s, actually %s", i+1, k.name, a.name)
		case !sameType(k.typ, a.typ, mariaDB):
			return fmt.Sprintf("column %s is %s, actually %s", k.name, k.typ, a.typ)
		case k.charset == "binary" && !a.text: // MySQL has no character set for an ENUM that is binary, MariaDB has this one
		case k.text != a.text, k.charset != "" && k.charset != a.charset:
			return fmt.Sprintf("column %s is in %q, actually in %q", k.name, k.charset, a.charset)
		}
	}
	if !strings.EqualFold(known.rowEnd, actual.rowEnd) {
		return fmt.Sprintf("the end of system versioning is %q, actually %q", known.rowEnd, actual.rowEnd)
	}
	return ""
}

// unnamedDifference is difference for a table whose columns' names come with the events: of the columns of which the
// binlog does not say all. Of a partial definition those that it lacks do not count.
func unnamedDifference(known, actual *definition, partial, mariaDB bool) string {
	for i := range actual.columns {
		a := &actual.columns[i]
		switch j := known.find(a.name); {
		case j < 0 && a.special() && !partial:
			return fmt.Sprintf("there is no column %s, actually it is %s", a.name, a.typ)
		case j >= 0 && (a.special() || known.columns[j].special()) && !sameType(known.columns[j].typ, a.typ, mariaDB):
			return fmt.Sprintf("column %s is %s, actually %s", a.name, known.columns[j].typ, a.typ)
		}
	}
	if !partial && !strings.EqualFold(known.rowEnd, actual.rowEnd) {
		return fmt.Sprintf("the end of system versioning is %q, actually %q", known.rowEnd, actual.rowEnd)
	}
	return ""
}

// sameType reports whether two values of COLUMN_TYPE mean the same.
func sameType(a, b string, mariaDB bool) bool {
	if a == b {
		return true
	}
	x, ok1 := ddl.ParseType(a, mariaDB)
	y, ok2 := ddl.ParseType(b, mariaDB)
	return ok1 && ok2 && x.String() == y.String()
}

// ownKey is the primary key that MySQL gives a table that has none, as its first column. Whether statements and
// information_schema show it is a matter of settings.
// Source: MySQL Reference Manual, "Generated Invisible Primary Keys".
const ownKey = "my_row_id"

func (d *definition) withoutOwnKey() []column {
	if len(d.columns) > 0 && d.columns[0].name == ownKey {
		return d.columns[1:]
	}
	return d.columns
}
