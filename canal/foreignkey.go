package canal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// foreignKey is one that changes rows of its table, the child, when rows of the parent change. InnoDB does that below
// the server's SQL layer, so those rows are in no binlog. Source: MySQL Reference Manual, "FOREIGN KEY Constraints"
// and "The Binary Log"; MariaDB, "Foreign Keys".
type foreignKey struct {
	Name          string
	Child, Parent ddl.Name
	// Columns are the child's, and Referenced the parent's, in the same order.
	Columns, Referenced []string
	// OnDelete and OnUpdate are the rules.
	OnDelete, OnUpdate rule
}

// rule is what a foreign key does to the rows of the child.
type rule string

const (
	cascades rule = "CASCADE"
	setsNull rule = "SET NULL"
)

// acts reports whether rows change. The other rules (RESTRICT, NO ACTION) refuse, and InnoDB knows no SET DEFAULT.
func (r rule) acts() bool { return r == cascades || r == setsNull }

// silent reports whether the server changes rows by foreign keys without row events: MariaDB, and MySQL before 9.6, or
// with the variable that gives foreign keys back to InnoDB.
// Source: MySQL 9.6 Release Notes, "innodb_native_foreign_keys".
func (s *session) silent(info *SourceInfo) (bool, error) {
	if info.Flavor == event.MariaDB || !atLeast(info.Version, 9, 6) {
		return true, nil
	}
	r, err := s.row("SELECT @@global.innodb_native_foreign_keys")
	if e, refused := retry.ServerError(err); refused && e.Code == errUnknownVariable {
		return false, nil
	}
	return err == nil && r[0] == "1", err
}

// atLeast reports whether a server's version is major.minor or later.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	x, err := strconv.Atoi(parts[0])
	y, err2 := strconv.Atoi(parts[1])
	return err == nil && err2 == nil && (x > major || x == major && y >= minor)
}

// awaitTables waits until no statement is under way that alters or drops one of the tables, or, as the session knows
// then, the wait is lost. The servers write it into the binlog before they give up the table, so the stream may be
// ahead of what they say. A table may be locked for hours, though, and by others than such a statement (LOCK TABLES).
// Tables that we may not read, or that are gone, are not waited for.
func (s *session) awaitTables(names []ddl.Name) error {
	for _, n := range names {
		err := s.touch(n)
		if _, refused := retry.ServerError(err); err != nil && !refused {
			return err
		}
		if retry.IsLockWait(err) {
			return nil
		}
	}
	return nil
}

// touch reads nothing of a table, for which it waits until nobody alters it.
func (s *session) touch(n ddl.Name) error {
	return s.exec("SELECT 1 FROM " + n.SQL() + " LIMIT 0")
}

// foreignKeys asks for those that change rows. Only those of tables are listed on which we have some right.
func (s *session) foreignKeys(name func(ddl.Name) ddl.Name) ([]foreignKey, error) {
	columns, err := s.rows("SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, " +
		"REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE " +
		"WHERE REFERENCED_TABLE_NAME IS NOT NULL ORDER BY 1, 2, 3, ORDINAL_POSITION")
	if err != nil || len(columns) == 0 {
		return nil, err
	}
	rules, err := s.rules()
	if err != nil {
		return nil, err
	}
	var out []foreignKey
	var last keyName
	for _, c := range columns {
		n := keyName(c)
		if n != last || len(out) == 0 {
			if rules[n] == nil {
				if err := s.rulesOf(n, rules); err != nil {
					return nil, err
				}
			}
			out = append(out, foreignKey{
				Name: n[2], Child: name(ddl.Name{Schema: n[0], Table: n[1]}), Parent: name(ddl.Name{Schema: c[4], Table: c[5]}),
				OnDelete: rules[n].onDelete, OnUpdate: rules[n].onUpdate,
			})
			last = n
		}
		k := &out[len(out)-1]
		k.Columns, k.Referenced = append(k.Columns, c[3]), append(k.Referenced, c[6])
	}
	return slices.DeleteFunc(out, func(k foreignKey) bool { return !k.OnDelete.acts() && !k.OnUpdate.acts() }), nil
}

// keyName is the schema and the table of a foreign key, and its own name.
type keyName [3]string

// ruling is the rules of a foreign key.
type ruling struct{ onDelete, onUpdate rule }

// rules asks for the rules of all foreign keys. MariaDB lists only those of tables on which we have a right other than
// SELECT. Observed on MariaDB 10.11.
func (s *session) rules() (map[keyName]*ruling, error) {
	rows, err := s.rows("SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE " +
		"FROM information_schema.REFERENTIAL_CONSTRAINTS")
	out := make(map[keyName]*ruling, len(rows))
	for _, r := range rows {
		out[keyName(r)] = &ruling{rule(r[3]), rule(r[4])}
	}
	return out, err
}

// rulesOf asks for the rules of a foreign key, and of all others of its table, in the way that SELECT is enough for. If
// it is not, the foreign key counts as one that changes rows.
func (s *session) rulesOf(n keyName, rules map[keyName]*ruling) error {
	if err := s.exec("SET SESSION sql_mode = '', sql_quote_show_create = 1"); err != nil {
		return err
	}
	rows, err := s.rows("SHOW CREATE TABLE " + ddl.Name{Schema: n[0], Table: n[1]}.SQL())
	if _, refused := retry.ServerError(err); err != nil && !refused {
		return err
	}
	rules[n] = &ruling{cascades, cascades}
	for _, r := range rows {
		for _, line := range strings.Split(r[1], "\n") {
			name, clause, found := strings.Cut(strings.TrimPrefix(line, "  CONSTRAINT `"), "` FOREIGN KEY ")
			if found {
				rules[keyName{n[0], n[1], strings.ReplaceAll(name, "``", "`")}] = rulesIn(clause)
			}
		}
	}
	return nil
}

// rulesIn reads the rules of a foreign key as SHOW CREATE TABLE prints it: after the columns that it refers to.
func rulesIn(clause string) *ruling {
	clause = clause[strings.LastIndexByte(clause, ')')+1:]
	of := func(event string) rule {
		for _, r := range []rule{cascades, setsNull} {
			if strings.Contains(clause, event+" "+string(r)) {
				return r
			}
		}
		return ""
	}
	return &ruling{of("ON DELETE"), of("ON UPDATE")}
}

// wave is where foreign keys carry a change of a row.
type wave struct {
	keys *keyGraph
	// deleted are tables of which rows were deleted, and changed foreign keys whose columns were changed in the child.
	deleted map[ddl.Name]bool
	changed map[*foreignKey]bool
	tables  map[ddl.Name]bool
}

// keyGraph are the foreign keys of a server.
type keyGraph struct {
	of map[ddl.Name][]*foreignKey // by parent
	// wanted says which tables count.
	wanted func(ddl.Name) bool
}

func graphOf(keys []foreignKey, wanted func(ddl.Name) bool) *keyGraph {
	g := &keyGraph{map[ddl.Name][]*foreignKey{}, wanted}
	for i := range keys {
		g.of[keys[i].Parent] = append(g.of[keys[i].Parent], &keys[i])
	}
	return g
}

func (g *keyGraph) wave() *wave {
	return &wave{g, map[ddl.Name]bool{}, map[*foreignKey]bool{}, map[ddl.Name]bool{}}
}

// rowDeleted follows a deleted row of a table.
func (w *wave) rowDeleted(n ddl.Name) {
	if w.deleted[n] {
		return
	}
	w.deleted[n] = true
	for _, k := range w.keys.of[n] {
		switch k.OnDelete {
		case cascades:
			w.touch(k.Child)
			w.rowDeleted(k.Child)
		case setsNull:
			w.columnsChanged(k)
		}
	}
}

// columnsChanged follows a row of a child in which the columns of a foreign key were changed.
func (w *wave) columnsChanged(of *foreignKey) {
	if w.changed[of] {
		return
	}
	w.changed[of] = true
	w.touch(of.Child)
	for _, k := range w.keys.of[of.Child] {
		if k.OnUpdate.acts() && overlap(k.Referenced, of.Columns) {
			w.columnsChanged(k)
		}
	}
}

func (w *wave) touch(n ddl.Name) {
	if w.keys.wanted(n) {
		w.tables[n] = true
	}
}

// overlap reports whether two lists of columns have one in common. Names of columns compare without letter case, and
// one that is not known is any.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return x == "" || y == "" || strings.EqualFold(x, y) })
	})
}

// names returns the tables that were reached, in order.
func (w *wave) names() (out []string) {
	for n := range w.tables {
		out = append(out, n.String())
	}
	slices.Sort(out)
	return out
}

// parent is a table whose row events tell of rows of wanted tables that have none.
type parent struct {
	// deleted are the tables that a deleted row reaches; none: it reaches nothing.
	deleted []string
	// references are the columns whose change reaches tables.
	references []reference
}

// reference is columns of a parent that a foreign key refers to, and the tables that a change of one of them reaches.
type reference struct {
	columns []string
	tables  []string
}

// all returns every table that a row of the parent reaches.
func (p *parent) all() []string {
	out := slices.Clone(p.deleted)
	for _, r := range p.references {
		out = append(out, r.tables...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// parentsOf returns the tables whose row changes reach wanted tables through foreign keys.
func parentsOf(keys []foreignKey, wanted func(ddl.Name) bool) map[ddl.Name]*parent {
	g := graphOf(keys, wanted)
	parents := map[ddl.Name]*parent{}
	for n, of := range g.of {
		p, w := &parent{}, g.wave()
		w.rowDeleted(n)
		p.deleted = w.names()
		for _, k := range of {
			if !k.OnUpdate.acts() {
				continue
			}
			w := g.wave()
			if w.columnsChanged(k); len(w.tables) > 0 {
				p.references = append(p.references, reference{k.Referenced, w.names()})
			}
		}
		if len(p.deleted)+len(p.references) > 0 {
			parents[n] = p
		}
	}
	return parents
}

// keysMark begins the part of a state that says which foreign keys there were.
const keysMark = "keys "

// keptKey is a foreign key in a state. Past says that it was gone when the server was asked. Held, of one that is none,
// says that there may be others, of tables that were locked.
type keptKey struct {
	foreignKey
	Past bool `json:",omitempty"`
	Held bool `json:",omitempty"`
}

// joinKeys puts foreign keys before a state; none: nothing. held says that there may be others.
func joinKeys(now, past []foreignKey, held bool, state []byte) ([]byte, error) {
	if len(now)+len(past) == 0 && !held {
		return state, nil
	}
	kept := make([]keptKey, 0, len(now)+len(past)+1)
	if held {
		kept = append(kept, keptKey{Held: true})
	}
	for _, k := range now {
		kept = append(kept, keptKey{foreignKey: k})
	}
	for _, k := range past {
		kept = append(kept, keptKey{foreignKey: k, Past: true})
	}
	line, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(keysMark), line, []byte("\n"), state), nil
}

// splitKeys takes apart what joinKeys put together.
func splitKeys(state []byte) (now, past []foreignKey, held bool, rest []byte, err error) {
	text, marked := strings.CutPrefix(string(state), keysMark)
	if !marked {
		return nil, nil, false, state, nil
	}
	line, after, _ := strings.Cut(text, "\n")
	var kept []keptKey
	if err := json.Unmarshal([]byte(line), &kept); err != nil {
		return nil, nil, false, nil, fmt.Errorf("foreign keys in the checkpoint: %w", err)
	}
	for _, k := range kept {
		switch {
		case k.Held:
			held = true
		case k.Past:
			past = append(past, k.foreignKey)
		default:
			now = append(now, k.foreignKey)
		}
	}
	return now, past, held, []byte(after), nil
}
