package doubt

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// Doubt says that some keys may be stale although all that was read is finished.
type Doubt struct {
	// ID names the doubt to operators. It follows from the cause and the subject: the same trouble with the same
	// subject is the same doubt, also when it is read again after a crash. [Book.Record] sets it.
	ID string `json:"id"`
	// Cause is the kind of the alarm that is raised with it.
	Cause alarm.Kind `json:"cause"`
	// Source and Group say whose doubt it is: of a source's rows (all Redis that are kept fresh from it, so that each
	// group of invalidators settles it, see [Book.Share]), or of the Redis that one group keeps fresh. One of them may be
	// empty.
	Source string `json:"source,omitempty"`
	Group  string `json:"group,omitempty"`
	// Tables are those whose keys may be stale, as schema.table. Schemas are those that were dropped: they stand for
	// every table in them. Both empty: keys of every mapped table.
	Tables  []string `json:"tables,omitempty"`
	Schemas []string `json:"schemas,omitempty"`
	// Subject tells doubts of one cause apart where the tables do not, such as a server or a partition.
	Subject string `json:"subject,omitempty"`
	// Message is a whole sentence for the operator: what, where, what to do. No key, no row value, no secret.
	Message string `json:"message"`
	// Since and Last are when it came first and last, by the clock of the machine that recorded it, for display; Count
	// is how often. Last also tells what a dismissal was meant for, see [Book.Dismiss].
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
	// Templates are those whose keys are meant, as they stand in the mappings; empty: all of the tables. Pattern, if there
	// is one, is a glob that the keys also match. Both are for what an operator asked for.
	Templates []string `json:"templates,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`
	// Definitions are the columns of the tables that keys are made of, as rows had last shown them each time that the
	// doubt came: of a table that is dropped, nobody else knows. Empty where they are not known.
	Definitions []*event.Table `json:"definitions,omitempty"`
	// At is where in the source's binlog it happened last; zero where that is not known. What was read from the source
	// before everybody could see that place may be stale.
	At event.Version `json:"at,omitzero"`
	// From, if there is one, says that the keys are those of the changes from a place in the source's binlog on: what
	// freshet's stamp in Redis said, or what canal.Locate takes, such as a time.
	From string `json:"from,omitempty"`
	// Where, if it is there, is SQL: the keys are those that rows of the table make which meet it. It is not shown, for it
	// may hold values of rows.
	Where string `json:"where,omitempty"`
	// Lost, if it is there, says that the keys are those of records that one partition of the topic has lost.
	Lost *Lost `json:"lost,omitempty"`
	// Asked says that an operator wants it answered, though freshet would not do so by itself.
	Asked bool `json:"asked,omitempty"`
	// AskedAt is when that was last, by the clock of who asked; zero: never, or an earlier version has kept it.
	AskedAt time.Time `json:"asked_at,omitzero"`
	// Answer says in a sentence how it is being answered. It is not kept: [Book.Say] sets it.
	Answer string `json:"answer,omitempty"`
	// Progress is how far that is, where it is known. It is not kept: [Book.Reached] sets it.
	Progress *event.Progress `json:"progress,omitempty"`
	// Stuck says that nothing more will happen by itself, and Answer why ([Book.Stuck]). It is not kept either.
	Stuck bool `json:"stuck,omitempty"`
}

// Lost are the records of a partition of the topic in Kafka that are gone: all that there were from an offset on.
type Lost struct {
	Partition int   `json:"partition"`
	From      int64 `json:"from"`
}

// or returns what is lost according to either of two, of one partition; nil stands for records of any.
func (l *Lost) or(other *Lost) *Lost {
	switch {
	case l == nil || other == nil || l.Partition != other.Partition:
		return nil
	case other.From < l.From:
		return other
	}
	return l
}

// Named returns d as a book records it: with its ID, its order and its bounds.
func (d Doubt) Named() Doubt {
	d.normalize()
	return d
}

// Clone returns a copy whose lists the caller may change. What they hold of definitions is that of d.
func (d Doubt) Clone() Doubt {
	d.Tables, d.Schemas, d.Templates = slices.Clone(d.Tables), slices.Clone(d.Schemas), slices.Clone(d.Templates)
	d.Definitions = slices.Clone(d.Definitions)
	return d
}

// EveryTable reports whether the doubt is about keys of every mapped table.
func (d *Doubt) EveryTable() bool { return len(d.Tables)+len(d.Schemas) == 0 }

// Keeper keeps doubts durably.
type Keeper interface {
	// Doubts returns all that are kept.
	Doubts(ctx context.Context) ([]Doubt, error)
	// PutDoubt keeps d in the place of the one with its ID; it is durable when PutDoubt returns nil.
	PutDoubt(ctx context.Context, d Doubt) error
	// DropDoubt removes the doubt with this ID, if there is one, durably.
	DropDoubt(ctx context.Context, id string) error
}

// Follower is a [Keeper] that other processes write to as well. Its Doubts waits for Follow to have read what is kept,
// and holds at least what this process has put.
type Follower interface {
	Keeper
	// Follow calls changed once all that is kept has been read, and whenever others have changed it, until ctx ends.
	Follow(ctx context.Context, changed func())
	// CatchUp returns once Follow has read all that was kept before the call.
	CatchUp(ctx context.Context) error
}

// Facts keeps small facts durably, each under a name such as "redis/GROUP". A [Keeper] keeps them too.
type Facts interface {
	// Fact returns the value of a fact; nil if there is none.
	Fact(ctx context.Context, name string) ([]byte, error)
	// SetFact gives a fact a value, of up to [MaxFact] bytes, durably.
	SetFact(ctx context.Context, name string, value []byte) error
	// DropFact removes a fact durably, if it is there.
	DropFact(ctx context.Context, name string) error
}

// MaxFact is how long the value of a fact may be, in bytes: the columns of some thousand tables, compressed, and less
// than half of what the topic's reader takes.
const MaxFact = 224 << 10

// Causes returns the kinds of alarm that are doubts.
func Causes() []alarm.Kind {
	return []alarm.Kind{
		alarm.TruncatedTable,
		alarm.StatementLogged,
		alarm.RowsCascaded,
		alarm.BinlogIncomplete,
		alarm.RedisChanged,
		alarm.RedisMoved,
		alarm.RedisSplit,
		alarm.DefinitionChanged,
		alarm.EventUndecodable,
		alarm.ServerBehind,
		alarm.SourceSplit,
		alarm.FillServerLeftOut,
		alarm.SourceShared,
		alarm.XAKeysUnknown,
		alarm.XAUnread,
		alarm.ColumnAbsent,
		alarm.KeyTooLong,
		alarm.MappingUnfit,
		alarm.MappingsChanged,
		alarm.FirstStart,
		alarm.BinlogGap,
		alarm.PositionSkipped,
		alarm.RecordsLost,
		alarm.RecordUnreadable,
		alarm.ByHand,
	}
}

// The errors of [Book.Dismiss].
var (
	// ErrUnknown: there is no doubt with this ID.
	ErrUnknown = errors.New("no such doubt")
	// ErrCameAgain: the doubt has come again since it was looked at.
	ErrCameAgain = errors.New("it has come again since you looked at it")
)

// The bounds of one doubt.
const (
	maxMessage = 4 << 10 // bytes
	maxTables  = 500     // and schemas
	// maxDefinitions is how many definitions are kept, the newest, and maxDefinitionBytes how long they are as JSON: a
	// doubt must fit into a record of the topic of doubts, and the labels of an ENUM may be many.
	maxDefinitions     = 64
	maxDefinitionBytes = 256 << 10
)

// normalize gives d its bounds, its order and its ID.
func (d *Doubt) normalize() {
	for _, names := range []*[]string{&d.Tables, &d.Schemas, &d.Templates} {
		*names = slices.Compact(slices.Sorted(slices.Values(*names)))
	}
	if len(d.Tables)+len(d.Schemas) > maxTables {
		d.Tables, d.Schemas = nil, nil
	}
	if len(d.Message) > maxMessage {
		cut := maxMessage
		for !utf8.RuneStart(d.Message[cut]) {
			cut--
		}
		d.Message = d.Message[:cut] + "…"
	}
	d.ID = d.id()
}

// newest returns as many of definitions as are kept, of which the last is the newest.
func newest(all []*event.Table) []*event.Table {
	all = all[max(0, len(all)-maxDefinitions):]
	from := len(all)
	for room := maxDefinitionBytes; from > 0; from-- {
		text, err := json.Marshal(all[from-1])
		if room -= len(text) + 1; err != nil || room < 0 {
			break
		}
	}
	return all[from:]
}

// id returns the name of a doubt: 12 hexadecimal digits of what makes it itself.
func (d *Doubt) id() string {
	h := fnv.New64a()
	parts := slices.Concat([]string{string(d.Cause), d.Source, d.Group, d.Subject}, d.Tables)
	if len(d.Schemas) > 0 {
		parts = slices.Concat(parts, []string{"schemas"}, d.Schemas)
	}
	if d.Pattern != "" || len(d.Templates) > 0 {
		parts = slices.Concat(parts, []string{"keys", d.Pattern}, d.Templates)
	}
	if d.From != "" {
		parts = append(parts, "from", d.From)
	}
	if d.Where != "" {
		parts = append(parts, "where", d.Where)
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%q", part)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// modernize gives a doubt that an earlier version kept its present form: the schema of a DROP DATABASE was among its
// tables. Its ID stays. A table's name has a dot, and where a schema's has one as well, the message tells.
func (d *Doubt) modernize() {
	var tables []string
	for _, name := range d.Tables {
		if !strings.Contains(name, ".") || strings.HasPrefix(d.Message, "drop schema of table "+name+":") {
			d.Schemas = append(d.Schemas, name)
		} else {
			tables = append(tables, name)
		}
	}
	d.Tables = tables
}

// older sorts doubts by when they came first.
func older(x, y Doubt) int { return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID)) }
