package ddl

import (
	"strconv"
	"strings"
)

// Verb is the kind of a statement, as far as the ends of transactions are concerned.
type Verb uint8

// The kinds of statement.
const (
	// Other changes neither rows nor definitions of tables: GRANT, CREATE VIEW, ANALYZE TABLE …
	Other Verb = iota
	Begin
	Commit
	Rollback
	// Savepoint is SAVEPOINT, ROLLBACK TO and RELEASE SAVEPOINT: they stand inside a transaction and do not end it.
	Savepoint
	// The XA statements; [Statement].XID names the transaction.
	XAStart
	XAEnd
	XAPrepare
	XACommit
	XARollback
	// DML changes rows, and was logged as a statement.
	DML
	// DDL changes the definition of something. It is a transaction of its own, but for MySQL's CREATE TABLE …
	// START TRANSACTION, whose rows follow and which stands between BEGIN and XID.
	DDL
	// Unknown: it could not be recognised; Unclear is set as well.
	Unknown
)

var verbs = [...]string{
	"other", "begin", "commit", "rollback", "savepoint", "xa start", "xa end", "xa prepare", "xa commit",
	"xa rollback", "dml", "ddl", "unknown",
}

// String returns the kind in words.
func (v Verb) String() string {
	if int(v) < len(verbs) {
		return verbs[v]
	}
	return "verb(" + strconv.Itoa(int(v)) + ")"
}

// Name is the name of a table. With an empty Table it is that of a schema.
type Name struct{ Schema, Table string }

// String returns schema.table.
func (n Name) String() string {
	if n.Table == "" {
		return n.Schema
	}
	return n.Schema + "." + n.Table
}

// SQL returns the name as a statement has it, whatever it holds.
func (n Name) SQL() string {
	if n.Table == "" {
		return Quote(n.Schema)
	}
	return Quote(n.Schema) + "." + Quote(n.Table)
}

// Quote returns a name of a schema, table, column or key as a statement has it, whatever it holds.
func Quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Statement is what a statement does.
type Statement struct {
	Verb Verb
	// XID identifies the transaction of the XA verbs, see [XID].
	XID string
	// Unclear says that the statement could not be read, and so may have changed any table: surely not outside
	// of Schema unless the text names other schemas.
	Unclear bool
	// Schema is the default schema that the statement ran in. Set only with Unclear.
	Schema string
	// Actions is what it does to each table, in the order in which it happens.
	Actions []Action
	// Calls are the names that may be those of functions which a statement calls that was logged with the rows that it
	// changed: keywords and tables may be among them.
	Calls []Name
}

// Op is what is done to a table, or to a schema.
type Op uint8

// The operations.
const (
	// OpWrite changes rows, and says so by statement only.
	OpWrite Op = iota + 1
	// OpCreate makes a table; Create holds its definition.
	OpCreate
	// OpCreateLike makes a table with the columns of another one, To.
	OpCreateLike
	// OpAlter changes a table's definition; Alter says how.
	OpAlter
	// OpRename gives a table the name To.
	OpRename
	OpDrop
	OpTruncate
	// The operations on schemas; Table.Table is empty. Create holds the character set for the first two.
	OpCreateSchema
	OpAlterSchema
	OpDropSchema
)

var ops = [...]string{
	"", "write", "create", "create like", "alter", "rename", "drop", "truncate", "create schema", "alter schema",
	"drop schema",
}

// String returns the operation in words.
func (o Op) String() string {
	if int(o) < len(ops) {
		return ops[o]
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// Action is what a statement does to one table or schema.
type Action struct {
	Op    Op
	Table Name
	// To is the new name for OpRename, and the model for OpCreateLike.
	To Name
	// If says that nothing was done if the table was there (OpCreate, OpCreateLike, OpCreateSchema: IF NOT EXISTS)
	// or was not there (the others: IF EXISTS).
	If bool
	// Replace says that a table of that name was dropped first.
	Replace bool
	// Rows says that rows were changed or removed without row events: by OpWrite, OpDrop, OpTruncate, OpDropSchema,
	// OpCreate with Replace, and by ALTER TABLE with partitions or tablespaces dropped, emptied or exchanged, or with
	// IGNORE.
	Rows bool
	// Unclear says that this action could not be read whole, or was done in part or to a temporary table: it
	// changed the definition of Table (and To) in an unknown way, or not at all.
	Unclear bool
	Create  *Definition
	Alter   *Alter
	// ForeignKeys are of OpCreate and OpAlter, also where they are unclear.
	ForeignKeys ForeignKeys
}

// Definition is what CREATE TABLE says of the columns, and CREATE or ALTER DATABASE of the character set.
type Definition struct {
	Columns []Column
	Charset CharsetClause
	// Versioned says that the table has MariaDB's system versioning: it keeps the rows that were, too.
	Versioned bool
}

// CharsetClause is a character set or collation, as written. The zero value: none is written.
type CharsetClause struct {
	// Charset is the name of the character set in lower case, utf8mb3 for utf8; "" where only a collation is given.
	Charset string
	// Collation is the name of the collation in lower case, "" where only a character set is given.
	Collation string
	// Default says CHARACTER SET DEFAULT: that of the schema.
	Default bool
}

// IsZero reports whether nothing is written.
func (c CharsetClause) IsZero() bool { return c == CharsetClause{} }

// Column is the definition of a column.
type Column struct {
	Name string
	Type Type
	// RowEnd says GENERATED ALWAYS AS ROW END: until when a row of a system-versioned table held.
	RowEnd bool
	// Generated says that an expression makes the column's values.
	Generated bool
	// NotNull says NOT NULL or PRIMARY KEY, Null says NULL. A TIMESTAMP without either may be NOT NULL.
	NotNull, Null bool
	// versioned says WITH SYSTEM VERSIONING, which makes the table a versioned one.
	versioned bool
}

// Alter is what ALTER TABLE says of the columns.
type Alter struct {
	Clauses []Clause
	// Charset becomes the table's default.
	Charset CharsetClause
	// Convert says that text columns are converted to Charset as well.
	Convert bool
	// Lax says that the session was not strict: the statement gives a column that becomes NOT NULL another value for NULL.
	Lax bool
	// AddsPrimaryKey says ADD PRIMARY KEY, whose columns become NOT NULL.
	AddsPrimaryKey bool
	// AddsVersioning and DropsVersioning say ADD and DROP SYSTEM VERSIONING.
	AddsVersioning, DropsVersioning bool
}

// KeepsColumns reports whether the statement leaves the columns and the default character set as they are, and whether
// the table is a versioned one.
func (a *Alter) KeepsColumns() bool {
	return len(a.Clauses) == 0 && a.Charset.IsZero() && !a.Convert && !a.AddsVersioning && !a.DropsVersioning
}

// ClauseKind is what a clause of ALTER TABLE does to a column.
type ClauseKind uint8

// The kinds of clause.
const (
	// AddColumn adds Column.
	AddColumn ClauseKind = iota + 1
	// DropColumn drops the column Old.
	DropColumn
	// ChangeColumn makes Column of the column Old: CHANGE, and MODIFY with Old as the name.
	ChangeColumn
	// RenameColumn gives the column Old the name Column.Name.
	RenameColumn
)

// Clause is a clause of ALTER TABLE that changes a column.
type Clause struct {
	Kind   ClauseKind
	Old    string
	Column Column
	// First and After say where the column goes: to the beginning, after the column After, or ("") where it is.
	First bool
	After string
	// If says IF EXISTS, or with AddColumn IF NOT EXISTS.
	If bool
}
