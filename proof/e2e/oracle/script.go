package oracle

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Step does some random things to the tables. Statements that fail are part of it.
func (w *World) Step(ctx context.Context, actions int) error {
	for conn := range w.conns {
		w.session(ctx, conn)
	}
	for range actions {
		switch n := w.r.IntN(20); {
		case n < 7:
			w.single(ctx, 0)
		case n < 13:
			w.transaction(ctx, 0)
		case n < 15:
			w.xa(ctx)
		case n < 16:
			w.shadow(ctx)
		case n < 19:
			if err := w.alter(ctx, pick(w.r, w.tables()...)); err != nil {
				return err
			}
		case oneIn(w.r, 2):
			if err := w.replaceTable(ctx, pick(w.r, w.tables()...)); err != nil {
				return err
			}
		default:
			w.session(ctx, w.r.IntN(2))
		}
	}
	return ctx.Err()
}

// session sets what sessions differ in.
func (w *World) session(ctx context.Context, conn int) {
	r := w.r
	settings := []string{
		"time_zone = " + pick(r, "'+00:00'", "'+05:30'", "'-08:00'"),
		"sql_mode = " + pick(r, "''", "'STRICT_TRANS_TABLES'", "'ANSI_QUOTES'", "'NO_BACKSLASH_ESCAPES'",
			"'PAD_CHAR_TO_FULL_LENGTH'"),
		"innodb_lock_wait_timeout = 1", "lock_wait_timeout = 2",
	}
	if w.mariaDB {
		settings = append(settings, "system_versioning_alter_history = KEEP")
	} else {
		settings = append(settings, "binlog_transaction_compression = "+pick(r, "ON", "OFF"))
	}
	_ = w.do(ctx, conn, "SET NAMES utf8mb4")
	_ = w.do(ctx, conn, "SET "+strings.Join(settings, ", "))
	_ = w.do(ctx, conn, "USE "+pick(r, "oracle", quote(w.schema)))
}

// begin gives the session's next transaction a number.
func (w *World) begin(ctx context.Context, conn int) int {
	w.tx++
	_ = w.do(ctx, conn, fmt.Sprintf("SET @oracle_tx = %d", w.tx))
	return w.tx
}

func (w *World) single(ctx context.Context, conn int) {
	tx := w.begin(ctx, conn)
	_ = w.do(ctx, conn, w.statement())
	w.committed[tx] = time.Now()
}

func (w *World) transaction(ctx context.Context, conn int) {
	tx := w.begin(ctx, conn)
	_ = w.do(ctx, conn, pick(w.r, "BEGIN", "START TRANSACTION"))
	w.body(ctx, conn)
	_ = w.do(ctx, conn, pick(w.r, "COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))
	w.committed[tx] = time.Now()
}

// body runs statements, some of which are taken back.
func (w *World) body(ctx context.Context, conn int) {
	for range 1 + w.r.IntN(4) {
		_ = w.do(ctx, conn, w.statement())
	}
	if oneIn(w.r, 3) {
		_ = w.do(ctx, conn, "SAVEPOINT a")
		_ = w.do(ctx, conn, w.statement())
		_ = w.do(ctx, conn, pick(w.r, "ROLLBACK TO a", "ROLLBACK TO a", "RELEASE SAVEPOINT a"))
		_ = w.do(ctx, conn, w.statement())
	}
}

// xa runs an XA transaction, and another one while it is prepared.
func (w *World) xa(ctx context.Context) {
	tx := w.begin(ctx, 0)
	xid := fmt.Sprintf("'x%d'", tx)
	_ = w.do(ctx, 0, "XA START "+xid)
	for range 1 + w.r.IntN(3) {
		_ = w.do(ctx, 0, w.statement())
	}
	w.prepared(ctx, tx)
	_ = w.do(ctx, 0, "XA END "+xid)
	if oneIn(w.r, 4) {
		_ = w.do(ctx, 0, "XA COMMIT "+xid+" ONE PHASE")
	} else if w.do(ctx, 0, "XA PREPARE "+xid) == nil {
		if oneIn(w.r, 2) {
			w.transaction(ctx, 1)
		}
		_ = w.do(ctx, 0, pick(w.r, "XA COMMIT ", "XA COMMIT ", "XA ROLLBACK ")+xid)
	} else {
		_ = w.do(ctx, 0, "XA ROLLBACK "+xid)
	}
	w.committed[tx] = time.Now()
}

// prepared notes the keys of an XA transaction that is about to be prepared: they may be deleted then, even if it is
// taken back (docs/architecture.md).
func (w *World) prepared(ctx context.Context, tx int) {
	if err := w.read(ctx, w.conns[0], fmt.Sprintf("tx = %d", tx),
		func(_ int, c *change) { w.add(w.may, c, perhaps) }); err != nil {
		w.did = append(w.did, "-- "+err.Error())
	}
}

// shadow changes a temporary table that hides one that is mapped: none of its rows are anybody's.
func (w *World) shadow(ctx context.Context) {
	t := pick(w.r, w.tables()...)
	if w.do(ctx, 0, pick(w.r, "CREATE TEMPORARY TABLE "+t.full()+" (x INT)", "CREATE TEMPORARY TABLE "+t.full()+" LIKE "+
		t.full())) != nil {
		return // what follows is not for the table itself
	}
	_ = w.do(ctx, 0, "INSERT INTO "+t.full()+" VALUES ()")
	_ = w.do(ctx, 0, "ALTER TABLE "+t.full()+" ADD COLUMN zz INT FIRST")
	_ = w.do(ctx, 0, pick(w.r, "DROP TEMPORARY TABLE ", "DROP TABLE ")+t.full())
}

// statement draws a statement that changes rows.
func (w *World) statement() string {
	r := w.r
	t := pick(r, w.tables()...)
	switch n := r.IntN(16); {
	case n < 6:
		return w.insert(t)
	case n < 11:
		return "UPDATE " + t.full() + " SET " + w.set(t, "") + " WHERE " + w.where(t, "") + pick(r, "", "", " LIMIT 3")
	case n < 13:
		return "DELETE FROM " + t.full() + " WHERE " + w.where(t, "") + pick(r, "", "", " LIMIT 2")
	case n < 14:
		return w.insertSelect(t)
	}
	return w.joined(t)
}

func (w *World) where(t *table, alias string) string {
	r, k := w.r, alias+quote(t.key.name)
	n := 1 + r.IntN(40)
	return pick(r, fmt.Sprintf("%s = %d", k, n), fmt.Sprintf("%s = %d", k, n),
		fmt.Sprintf("%s BETWEEN %d AND %d", k, n, n+r.IntN(12)),
		fmt.Sprintf("%s IN (%d, %d, %d)", k, n, n+2, n+9), fmt.Sprintf("%s %% 5 = %d", k, n%5))
}

func (w *World) set(t *table, alias string) string {
	r := w.r
	var all []string
	for range 1 + r.IntN(3) {
		c := pick(r, t.columns...)
		switch {
		case c.generated:
		case c == t.key:
			if oneIn(r, 3) {
				all = append(all, fmt.Sprintf("%[1]s = %[1]s + %[2]d", alias+quote(c.name), pick(r, 0, 1, 50)))
			}
		default:
			all = append(all, alias+quote(c.name)+" = "+c.literal(r))
		}
	}
	if len(all) == 0 {
		return fmt.Sprintf("%[1]s = %[1]s", alias+quote(t.key.name))
	}
	return strings.Join(all, ", ")
}

// writable draws some of the columns that can be written, the key first.
func (w *World) writable(t *table) []*column {
	all := []*column{t.key}
	for _, c := range t.columns {
		if c != t.key && !c.generated && !oneIn(w.r, 8) {
			all = append(all, c)
		}
	}
	return all
}

func names(columns []*column) string {
	var all []string
	for _, c := range columns {
		all = append(all, quote(c.name))
	}
	return strings.Join(all, ", ")
}

func (w *World) insert(t *table) string {
	r, columns := w.r, w.writable(t)
	n := 1 + r.IntN(4)
	if oneIn(r, 10) {
		n = 30
	}
	first := 1 + r.IntN(40)
	var rows []string
	for i := range n {
		values := []string{fmt.Sprint(first + i)}
		for _, c := range columns[1:] {
			values = append(values, c.literal(r))
		}
		rows = append(rows, "("+strings.Join(values, ", ")+")")
	}
	verb, tail := pick(r, "INSERT", "INSERT", "INSERT IGNORE", "REPLACE"), ""
	if verb == "INSERT" && oneIn(r, 2) {
		tail = " ON DUPLICATE KEY UPDATE " + w.set(t, "")
	}
	return verb + " INTO " + t.full() + " (" + names(columns) + ") VALUES " + strings.Join(rows, ", ") + tail
}

func (w *World) insertSelect(t *table) string {
	columns := w.writable(t)
	k := quote(t.key.name)
	from := names(columns)
	return fmt.Sprintf("%s INTO %s (%s) SELECT %s + %d%s FROM %s WHERE %s LIMIT 5",
		pick(w.r, "INSERT IGNORE", "REPLACE", "INSERT"), t.full(), from, k,
		pick(w.r, 1, 40), strings.TrimPrefix(from, k), t.full(), w.where(t, ""))
}

// joined changes two tables at once.
func (w *World) joined(t *table) string {
	other := pick(w.r, w.tables()...)
	from := fmt.Sprintf("%s a JOIN %s b ON a.%s = b.%s", t.full(), other.full(), quote(t.key.name), quote(other.key.name))
	where := " WHERE " + w.where(t, "a.")
	if oneIn(w.r, 4) {
		return "DELETE a, b FROM " + from + where
	}
	return "UPDATE " + from + " SET " + w.set(t, "a.") + ", " + w.set(other, "b.") + where
}
