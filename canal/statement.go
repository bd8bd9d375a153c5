package canal

import (
	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// flagThreadSpecific marks a statement that depends on temporary tables of its session.
// Source: MySQL's binlog_event.h (LOG_EVENT_THREAD_SPECIFIC_F).
const flagThreadSpecific = 0x4

// query handles a statement that was logged as text: what begins and ends transactions, DDL, and changes of rows
// that have no row events.
func (l *loop) query(h binlog.Header, body []byte) error {
	if h.Type == binlog.TypeQuery {
		// The two that come with nearly every transaction, and say nothing else that matters.
		switch string(binlog.QuerySQL(body)) {
		case "BEGIN":
			l.open()
			l.tx.began = true
			return nil
		case "COMMIT":
			l.open()
			return l.finish(h, Committed)
		}
	}
	q, err := l.dec.ParseQuery(h, body)
	if err != nil {
		return l.damaged(l.begin, err)
	}
	l.open()
	st := l.tables.parse(h, &q)
	if st.Verb == ddl.DDL || st.Verb == ddl.Other || st.Unclear {
		l.tables.opaque, l.tables.functions = nil, nil
	}
	l.tables.cascading.follow(l.tables, &st, q.SQL)
	if err := l.askKeys(); err != nil {
		return err
	}
	return l.statement(h, &st)
}

// statement follows a statement.
func (l *loop) statement(h binlog.Header, st *ddl.Statement) error {
	switch st.Verb {
	case ddl.Begin:
		l.tx.began = true
		return nil
	case ddl.Commit, ddl.Rollback:
		// ROLLBACK: the rows that stand were those of tables without transactions.
		return l.finish(h, Committed)
	case ddl.Savepoint, ddl.XAEnd:
		return nil
	case ddl.XAStart:
		l.tx.began, l.tx.XID = true, st.XID
		return nil
	case ddl.XAPrepare:
		l.tx.XID = st.XID
		return l.finish(h, Prepared)
	case ddl.XACommit:
		l.tx.XID = st.XID
		return l.finish(h, XACommitted)
	case ddl.XARollback:
		l.tx.XID = st.XID
		return l.finish(h, XARolledBack)
	}
	if err := l.unseen(st); err != nil {
		return err
	}
	l.tables.tracker.Apply(st)
	if st.Verb == ddl.DDL || st.Unclear {
		l.m.statements.WithLabelValues(statementDDL).Inc()
		l.dec.Forget()
	}
	if l.whole() {
		return l.finish(h, Committed)
	}
	return nil
}

// whole reports whether the present statement is the whole transaction. MariaDB says so when the transaction begins;
// on MySQL it is so unless BEGIN came before.
func (l *loop) whole() bool {
	if l.flavor == event.MariaDB && l.tx.announced {
		return l.tx.standalone
	}
	return !l.tx.began
}

// unseen records doubts about rows of mapped tables that a statement changed without row events.
func (l *loop) unseen(st *ddl.Statement) error {
	for i := range st.Actions {
		a := &st.Actions[i]
		name := a.Table.String()
		err := l.dropped(a)
		switch {
		case err != nil:
		case a.Op == ddl.OpRename && (l.wants(a.Table) || l.wants(a.To)):
			err = l.removed(a.Op.String()+" of table "+name+" to "+a.To.String(),
				doubt.Doubt{Tables: []string{name, a.To.String()}})
		case a.Op == ddl.OpAlter && !a.Rows:
			err = l.altered(a)
		case a.Op == ddl.OpWrite:
			err = l.written(a.Table)
		case !a.Rows || !l.wants(a.Table):
		case a.Op == ddl.OpDropSchema:
			err = l.removed("drop of schema "+name, doubt.Doubt{Schemas: []string{name}})
		default:
			err = l.removed(a.Op.String()+" of table "+name, doubt.Doubt{Tables: []string{name}})
		}
		if err != nil {
			return err
		}
	}
	if err := l.called(st); err != nil || !st.Unclear {
		return err
	}
	l.m.statements.WithLabelValues(statementUnclear).Inc()
	if st.Schema != "" && !l.tables.follows(st.Schema, "") {
		return nil
	}
	return l.doubt(alarm.StatementLogged, "a statement in the binlog of source "+l.o.Source+" in schema "+
		st.Schema+" could not be read: it may have changed rows of mapped tables there, whose definitions are "+
		"asked for again")
}

// written records doubts about rows that a statement changed, and those that foreign keys changed with them.
func (l *loop) written(n ddl.Name) error {
	name := n.String()
	if l.wants(n) {
		l.m.statements.WithLabelValues(statementRows).Inc()
		err := l.doubt(alarm.StatementLogged, "rows of table "+name+" were changed by a statement that the source "+
			"logged as a statement, so it is not known which: set binlog_format=ROW (also in sessions that set "+
			"their own)", name)
		if err != nil {
			return err
		}
	}
	reached, err := l.tables.reached(n)
	if err != nil {
		return err
	}
	if len(reached) > 0 {
		if err := l.record(l.tables.warning(n, reached).doubt); err != nil {
			return err
		}
	}
	what, err := l.tables.opaqueAs(n)
	if err != nil || what == "" {
		return err
	}
	return l.doubt(alarm.StatementLogged, name+" is a "+what+", and was changed by a statement that the source logged "+
		"as a statement, so it is not known which rows of which tables changed with it: set binlog_format=ROW (also in "+
		"sessions that set their own)")
}

// called records a doubt if a statement calls a function that may change rows of tables which nothing names.
func (l *loop) called(st *ddl.Statement) error {
	n, err := l.tables.opaqueCall(st.Calls)
	if err != nil || n.Table == "" {
		return err
	}
	return l.doubt(alarm.StatementLogged, n.String()+" is a function that may change rows, and was called by a statement that "+
		"the source logged as a statement, so it is not known which rows of which tables changed with it: set "+
		"binlog_format=ROW (also in sessions that set their own)")
}

// altered records a doubt if an ALTER TABLE may have given rows other values, or takes a column that the mappings use:
// what was cached under it, or with it, stays. One that could not be read whole may do either; so may one in a session
// with temporary tables, which may be about one of them.
func (l *loop) altered(a *ddl.Action) error {
	if !l.wants(a.Table) {
		return nil
	}
	name, what := a.Table.String(), ""
	if a.Unclear {
		what = " is not known whole: it may have changed any column"
	} else if column, err := l.tables.rewrites(a); err != nil {
		return err
	} else if column != "" {
		what = " changed column " + column
	}
	if what == "" {
		return nil
	}
	l.m.statements.WithLabelValues(statementRows).Inc()
	return l.doubt(alarm.StatementLogged, "ALTER TABLE "+name+what+": values may be others than they were, or gone, and the "+
		"source logs no rows for that", name)
}

// removed records that rows went without row events. d has the names.
func (l *loop) removed(what string, d doubt.Doubt) error {
	l.m.statements.WithLabelValues(statementTruncate).Inc()
	d.Cause = alarm.TruncatedTable
	d.Message = what + ": its rows went without row events, so their keys are still cached"
	return l.record(d)
}

// doubt records durably that keys of some tables (none named: of all mapped ones) may be stale.
func (l *loop) doubt(cause alarm.Kind, message string, tables ...string) error {
	return l.record(doubt.Doubt{Cause: cause, Tables: tables, Message: message})
}

// record records durably a doubt about the present place of the source.
func (l *loop) record(d doubt.Doubt) error {
	if !l.tx.noted {
		l.note()
	}
	l.doubted = l.version(0)
	d.Source, d.At = l.o.Source, l.doubted
	l.tx.doubt(d.Tables)
	return l.o.Doubts.Record(l.ctx, d)
}

// doubtful records that rows of a table may have been taken for what they are not.
func (l *loop) doubtful(table, why string) error {
	return l.doubt(alarm.DefinitionChanged, "table "+table+": "+why, table)
}

func (l *loop) wants(n ddl.Name) bool { return l.tables.wants(n.Schema, n.Table) }
