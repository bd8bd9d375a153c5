package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/freshet/freshet/proof/testbed"
)

// ghost does to a table what gh-ost does, statement by statement, as its v1.1.9 does (go/logic/applier.go,
// go/sql/builder.go): it reads the changes of the table from the binlog and applies them to a copy, which then
// takes the name of the table while two sessions hold it. v1.1.7 and older write the copy's rows with REPLACE:
// either is chosen.
type ghost struct {
	*alteration
	of, copy, log, old string // the tables, as gh-ost quotes them
	columns            []string
	shared             []string // columns that both have
	mapped             []string // their names in the copy
	insert             string
	stream             *replication.BinlogStreamer
}

// chunk is how many rows are copied at a time.
const chunk = 10

// migrate returns what runs gh-ost with --alter. Columns that it renames are named, as with --approve-renamed-columns.
func migrate(alter string, renamed map[string]string) func(*alteration) {
	return func(a *alteration) {
		a.t.Helper()
		quote := func(suffix string) string { return "`shop`.`_" + a.table.name + suffix + "`" }
		g := &ghost{
			alteration: a, of: "`shop`.`" + a.table.name + "`", copy: quote("_gho"), log: quote("_ghc"), old: quote("_del"),
			insert: pick(a.rnd, []string{"insert /* gh-ost %[1]s */ ignore into", "replace /* gh-ost %[1]s */ into"}),
		}
		defer g.tail()()
		g.begin(alter, renamed)
		g.copyRows()
		g.cutOver()
		a.do("drop /* gh-ost */ table if exists " + g.log)
		a.do("drop /* gh-ost */ table if exists " + g.old)
		a.touch()
	}
}

// tail begins to read the binlog.
func (g *ghost) tail() (end func()) {
	file, pos := g.source.BinlogPosition(g.t)
	s := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: uint32(1<<20 + g.source.Port), Flavor: string(g.source.Flavor), Host: "127.0.0.1",
		Port: uint16(g.source.Port), User: "root", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	var err error
	g.stream, err = s.StartSync(mysql.Position{Name: file, Pos: uint32(pos)})
	testbed.Must(g.t, err)
	return s.Close
}

// begin makes the tables.
func (g *ghost) begin(alter string, renamed map[string]string) {
	g.t.Helper()
	g.do("drop /* gh-ost */ table if exists " + g.log)
	g.do("create /* gh-ost */ table " + g.log + ` (
			id bigint unsigned auto_increment,
			last_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
			hint varchar(64) charset ascii not null,
			value varchar(4096) charset ascii not null,
			primary key(id),
			unique key hint_uidx(hint)
		) auto_increment=256 comment='gh-ost changelog'`)
	g.do("create /* gh-ost */ table " + g.copy + " like " + g.of)
	g.do("SET SESSION time_zone = '+00:00', sql_mode = CONCAT(@@session.sql_mode, ',NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES')")
	g.do("alter /* gh-ost */ table " + g.copy + " " + alter)
	g.note("GhostTableMigrated")
	g.touch()
	g.columns = g.columnsOf(g.table.name)
	copied := g.columnsOf("_" + g.table.name + "_gho")
	for _, c := range g.columns {
		name := c
		if to, ok := renamed[c]; ok {
			name = to
		}
		if slices.Contains(copied, name) {
			g.shared, g.mapped = append(g.shared, "`"+c+"`"), append(g.mapped, "`"+name+"`")
		}
	}
}

// columnsOf are those of a table, in their order.
func (g *ghost) columnsOf(table string) []string {
	g.t.Helper()
	return strings.Split(g.source.QueryText(g.t, "SELECT GROUP_CONCAT(COLUMN_NAME ORDER BY ORDINAL_POSITION) FROM "+
		"information_schema.COLUMNS WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = ?", table), ",")
}

// note writes to the table by which gh-ost talks to itself through the binlog.
func (g *ghost) note(state string) {
	g.t.Helper()
	g.do(fmt.Sprintf(`insert /* gh-ost */ into %s (id, hint, value) values (NULLIF(%d, 0), '%s', '%s')
		on duplicate key update last_update=NOW(), value=VALUES(value)`, g.log, 2, "state", state))
}

// copyRows copies the rows, and applies what the binlog has meanwhile.
func (g *ghost) copyRows() {
	g.t.Helper()
	into, from := strings.Join(g.mapped, ", "), strings.Join(g.shared, ", ")
	start, sign := 0, ">="
	for end := chunk; start < modelRows; start, end, sign = end, end+chunk, ">" {
		g.do(fmt.Sprintf(`insert /* gh-ost %s */ ignore into %s (%s)
			(select %s from %s force index (`+"`PRIMARY`"+`)
			where (((`+"`id`"+` %s %d)) and ((`+"`id`"+` < %d) or ((`+"`id`"+` = %d)))) lock in share mode)`,
			g.of, g.copy, into, from, g.of, sign, start, end, end))
		g.touch()
		state := fmt.Sprintf("copied %d", end)
		g.note(state)
		g.apply(state)
	}
}

// apply applies what the binlog has of the table, up to a note.
func (g *ghost) apply(until string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 3*time.Minute)
	defer cancel()
	for {
		ev, err := g.stream.GetEvent(ctx)
		testbed.Must(g.t, err)
		rows, ok := ev.Event.(*replication.RowsEvent)
		if !ok || string(rows.Table.Schema) != "shop" {
			continue
		}
		switch name := string(rows.Table.Table); name {
		case "_" + g.table.name + "_ghc":
			if last := rows.Rows[len(rows.Rows)-1]; fmt.Sprint(last[3]) == until {
				return
			}
		case g.table.name:
			testbed.Must(g.t, g.applyRows(rows))
		}
	}
}

// applyRows applies a rows event to the copy, in a transaction.
func (g *ghost) applyRows(e *replication.RowsEvent) error {
	ctx := g.t.Context()
	for { // until no client is in the way
		x, err := g.source.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = x.ExecContext(ctx, "SET /* gh-ost */ SESSION time_zone = '+00:00'")
		for i := 0; i < len(e.Rows) && err == nil; i++ {
			row := e.Rows[i]
			switch {
			case e.Type() == replication.EnumRowsEventTypeInsert:
				err = g.put(x.ExecContext, row)
			case e.Type() == replication.EnumRowsEventTypeDelete:
				err = g.remove(x.ExecContext, row)
			default:
				i++
				err = g.replace(x.ExecContext, row, e.Rows[i])
			}
		}
		if err = errors.Join(err, x.Commit()); !deadlock(err) {
			return err
		}
	}
}

// executor runs a statement in a transaction.
type executor func(ctx context.Context, query string, args ...any) (sql.Result, error)

// primary is where id stands in a row.
func (g *ghost) primary() int { return slices.Index(g.columns, "id") }

// replace is an UPDATE: where the key changes, the one row goes and another one comes.
func (g *ghost) replace(exec executor, before, after []any) error {
	if before[g.primary()] != after[g.primary()] {
		return errors.Join(g.remove(exec, before), g.put(exec, after))
	}
	var sets []string
	for _, name := range g.mapped {
		sets = append(sets, name+"=?")
	}
	_, err := exec(g.t.Context(), fmt.Sprintf("update /* gh-ost %s */ %s set %s where ((`id` = ?))", g.copy, g.copy,
		strings.Join(sets, ", ")), append(g.values(after), before[g.primary()])...)
	return err
}

func (g *ghost) put(exec executor, row []any) error {
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(g.mapped)), ", ")
	_, err := exec(g.t.Context(), fmt.Sprintf(g.insert, g.copy)+fmt.Sprintf(" %s (%s) values (%s)", g.copy,
		strings.Join(g.mapped, ", "), marks), g.values(row)...)
	return err
}

func (g *ghost) remove(exec executor, row []any) error {
	_, err := exec(g.t.Context(), fmt.Sprintf("delete /* gh-ost %s */ from %s where ((`id` = ?))", g.copy, g.copy),
		row[g.primary()])
	return err
}

// values are those of the columns that both have.
func (g *ghost) values(row []any) (all []any) {
	for i, c := range g.columns {
		if slices.Contains(g.shared, "`"+c+"`") {
			all = append(all, row[i])
		}
	}
	return all
}

// cutOver swaps the tables: one session locks the table and a magic one of the name that the table will get, another
// one waits for it with the RENAME, and the first one then drops the magic table and unlocks.
func (g *ghost) cutOver() {
	g.t.Helper()
	ctx, db := g.t.Context(), g.source.DB()
	locker, err := db.Conn(ctx)
	testbed.Must(g.t, err)
	defer locker.Close()
	renamer, err := db.Conn(ctx)
	testbed.Must(g.t, err)
	defer renamer.Close()
	lock := func(s string) {
		g.t.Helper()
		_, err := locker.ExecContext(ctx, s)
		testbed.Must(g.t, err)
	}
	lock("set /* gh-ost */ session lock_wait_timeout:=60")
	g.do("drop /* gh-ost */ table if exists " + g.old)
	g.do("create /* gh-ost */ table " + g.old + " (id int auto_increment primary key) engine=InnoDB comment='ghost-cut-over-sentry'")
	lock("lock /* gh-ost */ tables " + g.of + " write, " + g.old + " write")
	g.note("AllEventsUpToLockProcessed")
	g.apply("AllEventsUpToLockProcessed")

	var id int
	testbed.Must(g.t, renamer.QueryRowContext(ctx, "select /* gh-ost */ connection_id()").Scan(&id))
	_, err = renamer.ExecContext(ctx, "set /* gh-ost */ session lock_wait_timeout:=60")
	testbed.Must(g.t, err)
	renamed := make(chan error, 1)
	go func() {
		_, err := renamer.ExecContext(ctx, "rename /* gh-ost */ table "+g.of+" to "+g.old+", "+g.copy+" to "+g.of)
		renamed <- err
	}()
	testbed.Eventually(g.t, 2*time.Minute, "the RENAME waits for the lock", func() bool {
		return g.source.QueryText(g.t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ? AND STATE LIKE "+
			"'%metadata lock%' AND INFO LIKE '%rename%'", id) == "1"
	})
	lock("drop /* gh-ost */ table if exists " + g.old)
	lock("unlock /* gh-ost */ tables")
	testbed.Must(g.t, <-renamed)
}
