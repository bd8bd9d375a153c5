package schema

import (
	"container/list"
	"errors"
	"strings"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/retry"
)

// MaxOthers is how many tables are followed in addition to those that are wanted: the ones that were touched last.
const MaxOthers = 100

// maxSchemas is how many schemas a tracker knows the character set of.
const maxSchemas = 1000

// ErrDoubt says that it is not known what the columns of a table were at the present place of the stream.
// [Tracker.Resolve] may find out.
var ErrDoubt = errors.New("the columns of the table are in doubt")

// ErrUnknownSchema is wrapped by the error of [Tracker.Resolve] when it cannot be found out either, and then by that of
// [Tracker.Describe] until something changes.
var ErrUnknownSchema = errors.New("the columns of the table are not known")

// Options of a [Tracker].
type Options struct {
	// Wanted says which tables are asked for. Required.
	Wanted func(schema, table string) bool
	// MariaDB says that the source is one.
	MariaDB bool
	// FoldNames compares names of tables without case: for a source with lower_case_table_names other than 0.
	FoldNames bool
	// Collations are those of the source; nil: the well-known ones.
	Collations *charset.Collations
}

// Tracker knows the columns of tables at one place of the binlog, and follows them over its statements.
type Tracker struct {
	o       Options
	tables  map[ddl.Name]*entry
	schemas map[string]*schema
	clock   uint64
	// others are the names of the entries that need not be kept, the one that changed last at the end. They have a list
	// of their own, since to look for the oldest among all tables at each change of one would take the square of their
	// number.
	others list.List
	// encoded is the state as encoded last; nil after a change.
	encoded []byte
	changed bool
}

// status says what is known of a table.
type status uint8

const (
	doubt  status = iota // nothing
	absent               // it does not exist
	known                // its definition
	// hinted is the present definition according to the server, which need not be that of the place: good only where
	// names come with the events, and all else that matters of the columns.
	hinted
	// partial is the definition of some columns, by name: good only where names come with the events.
	partial
	// unknown: the server was asked, and what the columns were is written nowhere, or we may not read the table.
	unknown
)

// entry is what is known of one table. Absent and doubtful tables mostly have none, see [Tracker.implied].
type entry struct {
	status status
	def    *definition
	// used orders the entries by when they changed last.
	used uint64
	// of, of a partial or unknown one, is the TABLE_MAP for which the server was asked: it is not asked again for the
	// same.
	of *binlog.TableMap
	// why is the error of an unknown one; of a hinted or partial one it says that we may not read the table, or that it is
	// locked.
	why error
	// other is its place in [Tracker.others]; nil for what is wanted and defined.
	other *list.Element
	mapped
}

// mapped is how the rows of a table were last announced. It belongs to a connection, and is not saved.
type mapped struct {
	// id is the server's own for the table as it has opened it; 0: there were no rows.
	id uint64
	// named says that the names of columns came with them.
	named bool
	// due says that what is known has not been compared with the server since the table got this id.
	due bool
}

// schema is what is known of a schema.
type schema struct {
	charset charsets
	// whole says that it has no tables but those that have entries.
	whole bool
}

// New returns a tracker that knows nothing yet.
func New(o Options) (*Tracker, error) {
	if o.Wanted == nil {
		return nil, errors.New("schema: Options.Wanted is required")
	}
	return &Tracker{o: o, tables: map[ddl.Name]*entry{}, schemas: map[string]*schema{}}, nil
}

// Changed reports whether the state has changed since it was last encoded.
func (t *Tracker) Changed() bool { return t.changed }

// key returns the name under which a table is kept.
func (t *Tracker) key(n ddl.Name) ddl.Name {
	if t.o.FoldNames {
		return ddl.Name{Schema: strings.ToLower(n.Schema), Table: strings.ToLower(n.Table)}
	}
	return n
}

// implied is the status of a table without an entry.
func (t *Tracker) implied(n ddl.Name) status {
	if s := t.schemas[n.Schema]; s != nil && s.whole {
		return absent
	}
	return doubt
}

// get returns what is known of a table.
func (t *Tracker) get(n ddl.Name) entry {
	if e := t.tables[n]; e != nil {
		return *e
	}
	return entry{status: t.implied(n)}
}

// kept reports whether the entry is part of the state.
func (e *entry) kept() bool { return e.status == known || e.status == absent || e.status == partial }

// set says what is known of a table from now on.
func (t *Tracker) set(n ddl.Name, e entry) {
	implied := t.implied(n)
	if e.status == absent && implied == doubt && !t.o.Wanted(n.Schema, n.Table) {
		e = entry{} // not worth remembering: a table in doubt may be absent
	}
	old := t.get(n)
	if old.status == e.status && old.def == e.def && old.of == e.of {
		return
	}
	if old.kept() || e.kept() {
		t.touch()
	}
	t.remove(n)
	if e.status == implied {
		return
	}
	t.clock++
	e.used, e.other = t.clock, nil
	t.tables[n] = &e
	if e.def == nil || !t.o.Wanted(n.Schema, n.Table) {
		e.other = t.others.PushBack(n)
		t.bound()
	}
}

// remove removes the entry of a table, if it has one.
func (t *Tracker) remove(n ddl.Name) {
	e := t.tables[n]
	if e == nil {
		return
	}
	if e.other != nil {
		t.others.Remove(e.other)
	}
	delete(t.tables, n)
}

// Retry has the server asked again about what could not be found out, and forgets the ids of tables: for a new
// connection, since another server or other rights may answer otherwise.
func (t *Tracker) Retry() {
	for n, e := range t.tables {
		e.mapped = mapped{}
		switch e.status {
		case unknown:
			t.doubt(n)
		case partial:
			e.of = nil
		}
	}
}

// Unread returns the tables of which less is known than could be, because we may not read them, or they are locked.
// They are in no order.
func (t *Tracker) Unread() (all []ddl.Name) {
	for n, e := range t.tables {
		if isUnread(e.why) {
			all = append(all, n)
		}
	}
	return all
}

// IsUnread reports whether a table is one of those.
func (t *Tracker) IsUnread(n ddl.Name) bool {
	e := t.tables[t.key(n)]
	return e != nil && isUnread(e.why)
}

// IsDenied reports whether a table is one of those, because we may not read it.
func (t *Tracker) IsDenied(n ddl.Name) bool {
	e := t.tables[t.key(n)]
	return e != nil && retry.IsTableDenied(e.why)
}

// Allowed has the server asked again about one of [Tracker.Unread]: we may read it by now. It returns the TABLE_MAP
// under which rows came that could not be read, or not wholly; nil: there were none.
func (t *Tracker) Allowed(n ddl.Name) (m *binlog.TableMap) {
	e := t.tables[n]
	if e == nil {
		return nil
	}
	m = e.of
	if e.status == partial {
		e.of, e.why = nil, nil
	} else {
		t.doubt(n)
	}
	return m
}

func (t *Tracker) doubt(n ddl.Name)  { t.set(n, entry{}) }
func (t *Tracker) absent(n ddl.Name) { t.set(n, entry{status: absent}) }

// define sets the definition of a table; nil: it is in doubt.
func (t *Tracker) define(n ddl.Name, d *definition) {
	if d == nil {
		t.doubt(n)
		return
	}
	t.set(n, entry{status: known, def: d})
}

func (t *Tracker) touch() { t.encoded, t.changed = nil, true }

// bound forgets the entry that was used least lately when there are too many that need not be kept.
func (t *Tracker) bound() {
	if t.others.Len() <= MaxOthers {
		return
	}
	oldest := t.others.Front().Value.(ddl.Name)
	if s := t.schemas[oldest.Schema]; s != nil {
		s.whole = false // else the table would be taken for absent
	}
	t.remove(oldest)
	t.touch()
}

// schemaOf returns the entry of a schema, making it if there is none.
func (t *Tracker) schemaOf(name string) *schema {
	s := t.schemas[name]
	if s == nil {
		if len(t.schemas) >= maxSchemas {
			for n := range t.schemas { // any: what is forgotten is asked for again
				delete(t.schemas, n)
				break
			}
		}
		s = &schema{}
		t.schemas[name] = s
	}
	return s
}

// charsetOf returns the default character set of a schema.
func (t *Tracker) charsetOf(name string) charsets {
	if s := t.schemas[name]; s != nil {
		return s.charset
	}
	return charsets{}
}

// forgetNames forgets which tables are absent: for when a table may have been made under a name that is not known.
func (t *Tracker) forgetNames() {
	for _, s := range t.schemas {
		if s.whole {
			s.whole = false
			t.touch()
		}
	}
	for n, e := range t.tables {
		if e.status == absent {
			t.remove(n)
			t.touch()
		}
	}
}

// forgetAll puts everything in doubt.
func (t *Tracker) forgetAll() {
	if len(t.tables)+len(t.schemas) == 0 {
		return
	}
	t.touch()
	clear(t.tables)
	t.others.Init()
	clear(t.schemas)
}
