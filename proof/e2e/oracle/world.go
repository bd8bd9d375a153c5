package oracle

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// World is some tables, the mappings for them, and what was done to the tables.
type World struct {
	r        *rand.Rand
	mariaDB  bool
	types    []columnType
	schema   string
	families [][]*table
	mappings []*mapping
	versions []*table // as they were when their triggers were made

	conns     []*sql.Conn
	tx        int
	committed map[int]time.Time // when the COMMIT of a transaction had returned
	seen      int               // the last image that was read
	may       map[string]*Key   // of what was prepared
	did       []string
	doubted   map[string]bool
	leftOut   leftOut
	// keepTables: of a table that is dropped now, nobody will know what its columns were.
	keepTables bool
}

// New draws tables in a schema of their own, and mappings for them.
func New(r *rand.Rand, mariaDB bool, number int) *World {
	w := &World{
		r: r, mariaDB: mariaDB, types: types(mariaDB), committed: map[int]time.Time{}, doubted: map[string]bool{},
		may: map[string]*Key{},
	}
	w.schema = fmt.Sprintf("%s%d", pick(r, "shop", "Shop-", "Ünï ", "se.lect", "a`b", "日本", "100%"), number)
	names := slices.Clone(tableNames)
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i := range 2 + r.IntN(2) {
		w.families = append(w.families, w.family(w.schema, names[i:i+1]))
	}
	if oneIn(r, 2) {
		w.families = append(w.families, w.family(w.schema, []string{"order_00", "order_07"}))
	}
	for _, f := range w.families {
		for range 1 + r.IntN(3) {
			w.mappings = append(w.mappings, w.mapping(len(w.mappings)+1, f))
		}
	}
	return w
}

// YAML is the configuration's mappings.
func (w *World) YAML() string {
	var b strings.Builder
	b.WriteString("mappings:\n")
	for _, m := range w.mappings {
		b.WriteString(m.yaml())
	}
	return b.String()
}

// KeepTables says whether no table may be dropped: freshet is away while the binlog names no columns. Of a table that
// is dropped then it cannot read the rows before that, which is documented.
func (w *World) KeepTables(yes bool) { w.keepTables = yes }

// Statements are all statements so far, with what was wrong with them.
func (w *World) Statements() string { return strings.Join(w.did, "\n") }

// Doubted reports whether something was done to a table that is documented to leave a doubt.
func (w *World) Doubted(table string) bool { return w.doubted[table] }

// Make makes the tables, with their triggers. It connects.
func (w *World) Make(ctx context.Context, db *sql.DB) error {
	for range 2 {
		c, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		w.conns = append(w.conns, c)
	}
	statements := []string{
		"CREATE DATABASE IF NOT EXISTS oracle", "DROP TABLE IF EXISTS oracle.images",
		"CREATE TABLE oracle.images (n INT AUTO_INCREMENT PRIMARY KEY, tx INT NOT NULL, version INT NOT NULL, before_image LONGTEXT, after_image LONGTEXT) CHARACTER SET ascii",
		"CREATE DATABASE " + quote(w.schema) + " CHARACTER SET utf8mb4",
	}
	for _, t := range w.tables() {
		w.remember(t)
		statements = append(append(statements, t.create()), t.triggers()...)
	}
	for _, s := range statements {
		if err := w.do(ctx, 0, s); err != nil {
			return err
		}
	}
	return nil
}

// Close gives the connections back, and drops the tables.
func (w *World) Close(ctx context.Context) error {
	err := w.do(ctx, 0, "DROP DATABASE "+quote(w.schema))
	for _, c := range w.conns {
		c.Close()
	}
	return err
}

// remember gives a table's triggers a version.
func (w *World) remember(t *table) {
	t.version = len(w.versions)
	is := *t
	is.columns = slices.Clone(t.columns)
	w.versions = append(w.versions, &is)
}

func (w *World) tables() (all []*table) {
	for _, f := range w.families {
		all = append(all, f...)
	}
	return all
}

// do runs a statement and writes it down.
func (w *World) do(ctx context.Context, conn int, statement string) error {
	_, err := w.conns[conn].ExecContext(ctx, statement)
	line := fmt.Sprintf("[%d] %s;", conn, statement)
	if err != nil {
		line += fmt.Sprintf(" -- %v", err)
		err = fmt.Errorf("%.3000s: %w", statement, err)
	}
	if !strings.HasPrefix(statement, "CREATE TRIGGER") || err != nil {
		w.did = append(w.did, line)
	}
	return err
}

// Key is what is known of a key.
type Key struct {
	Must      bool      // it must be deleted
	Committed time.Time // when the last commit had returned after which it must be
	Why       string
}

// Expect returns the keys of all that was done since it was called before.
func (w *World) Expect(ctx context.Context, db *sql.DB) (map[string]*Key, error) {
	keys := w.may
	w.may = map[string]*Key{}
	err := w.read(ctx, db, fmt.Sprintf("n > %d", w.seen), func(n int, c *change) {
		w.seen = n
		w.add(keys, c, yes)
	})
	return keys, err
}

// reader is a connection, or several.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// read reads what the triggers have written down.
func (w *World) read(ctx context.Context, from reader, where string, each func(n int, c *change)) error {
	rows, err := from.QueryContext(ctx, "SELECT n, tx, version, before_image, after_image FROM oracle.images WHERE "+where+
		" ORDER BY n")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n, version int
		var before, after sql.NullString
		var c change
		if err := rows.Scan(&n, &c.tx, &version, &before, &after); err != nil {
			return err
		}
		c.of = w.versions[version]
		if c.old, err = c.of.read(before); err != nil {
			return err
		}
		if c.after, err = c.of.read(after); err != nil {
			return err
		}
		c.op = "UPDATE"
		if c.old == nil {
			c.op = "INSERT"
		} else if c.after == nil {
			c.op = "DELETE"
		}
		each(n, &c)
	}
	return rows.Err()
}

// read reads an image as its trigger has written it.
func (t *table) read(image sql.NullString) (row, error) {
	if !image.Valid {
		return nil, nil
	}
	parts := strings.Split(image.String, ",")
	if len(parts) != len(t.columns) {
		return nil, fmt.Errorf("an image of %s has %d columns, not %d", t.full(), len(parts), len(t.columns))
	}
	r := row{}
	for i, c := range t.columns {
		if parts[i] == "~" {
			r[strings.ToLower(c.name)] = value{null: true}
			continue
		}
		b, err := hex.DecodeString(parts[i])
		if err != nil {
			return nil, fmt.Errorf("column %s of an image of %s: %w", c.name, t.full(), err)
		}
		r[strings.ToLower(c.name)] = value{text: string(b)}
	}
	return r, nil
}

// add adds the keys of one change, of which no more is certain than most.
func (w *World) add(keys map[string]*Key, c *change, most verdict) {
	for i, m := range w.mappings {
		if !slices.ContainsFunc(m.tables, func(t *table) bool { return t.name == c.of.name }) {
			continue
		}
		v := min(w.open(m, c, m.verdict(c)), most)
		if v == no {
			continue
		}
		for _, t := range m.keys {
			v := w.unnamed(t, c, v)
			for _, image := range []row{c.old, c.after} {
				if image == nil {
					continue
				}
				for _, k := range t.keys(c.of, image) {
					have := keys[k]
					if have == nil {
						have = &Key{}
						keys[k] = have
					}
					if v == yes {
						have.Must, have.Committed = true, later(have.Committed, w.committed[c.tx])
					}
					have.Why = fmt.Sprintf("%s of %s in transaction %d, mapping %d: %s", c.op, c.of.full(), c.tx, i+1, t)
				}
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Compare says what is wrong with what was deleted, which is by key when the last acknowledged delete was sent. Keys of
// before may be deleted once more.
func Compare(want, before map[string]*Key, deleted map[string]time.Time) (wrong []string) {
	for k, w := range want {
		switch at, ok := deleted[k]; {
		case !w.Must:
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%q was not deleted: %s", k, w.Why))
		case !at.After(w.Committed):
			wrong = append(wrong, fmt.Sprintf("%q was not deleted after its commit, %s later than its last delete: %s", k,
				w.Committed.Sub(at), w.Why))
		}
	}
	for k := range deleted {
		if want[k] == nil && before[k] == nil {
			wrong = append(wrong, fmt.Sprintf("%q was deleted, and no row that changed has it", k))
		}
	}
	slices.Sort(wrong)
	return wrong
}
