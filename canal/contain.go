package canal

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unicode"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt/alarm"
)

// maxUnreadable is of how many tables the loop remembers since when their rows cannot be read.
const maxUnreadable = 1000

// unreadable is why rows of a table cannot be read, and since where.
type unreadable struct {
	why   string
	since binlogPos
}

// contain ends the handling of a TABLE_MAP or a rows event, also one that panicked: in the decoder, or in what the rows
// were handed out to. It keeps what is wrong with the rows of one table from stopping all others: the event is passed
// over, once it is durable that the table is in doubt. What has been handed out of the event stays: to delete more is
// always right. It must be deferred.
func (l *loop) contain(err *error) {
	if p := recover(); p != nil {
		*err = l.panicked(p)
	}
	if *err == nil || l.fatal != nil {
		return
	}
	var te *binlog.TableError
	if errors.As(*err, &te) && l.certain(te) {
		*err = l.passOver(te)
		return
	}
	*err = l.damaged(l.begin, *err)
}

// panicked makes an error of a panic. The log gets the stack, without the arguments of calls, which may be values of
// rows; so may a panic's own words, but for those of the runtime.
func (l *loop) panicked(p any) error {
	words := fmt.Sprintf("%T", p)
	if e, ok := p.(runtime.Error); ok {
		words = strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return '#' // an index may be a value
			}
			return r
		}, e.Error())
	}
	te := l.dec.Failed(errors.New("freshet failed over it (" + words + "); please report it with the stack in the log"))
	l.o.Logger.Error("panic over the rows of a table", "source", l.o.Source, "schema", te.Schema, "table", te.Table,
		"column", te.Column, "position", l.begin.String(), "panic", words, "stack", calls())
	return te
}

// calls returns the functions that are being called, innermost first, from the panic on.
func calls() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)]) // without this, panicked, contain and the panic
	var b strings.Builder
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s (%s:%d); ", f.Function, f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		if !more {
			return b.String()
		}
	}
}

// certain reports whether it is the event that cannot be decoded, and not what became of it on its way: its checksum
// was right, or it has come again on another connection, and failed again.
func (l *loop) certain(err error) bool {
	if f := l.dec.Format(); !errors.Is(err, binlog.ErrDamaged) || f != nil && f.Checksum == binlog.ChecksumCRC32 {
		return true
	}
	again := l.suspect == l.begin
	l.suspect = l.begin
	return again
}

// passOver records that the keys of a table are in doubt because rows of it could not be read. The message stays the
// same while the reason does, whatever number of events it concerns: repeats of an alarm are known by it.
func (l *loop) passOver(te *binlog.TableError) error {
	n := ddl.Name{Schema: te.Schema, Table: te.Table}
	name, of := n.String(), []string{n.String()}
	switch {
	case te.Table == "":
		name, of = "(not known which)", nil
	case !l.wants(n):
		l.warnUnread(n)
		return nil // its rows are only counted, within a compressed transaction
	}
	l.warnUnread(n)
	t, why := l.troubles[name], te.Err.Error()
	if te.Column != "" {
		why = "column " + te.Column + ": " + why
	}
	if t.why != why {
		if len(l.troubles) >= maxUnreadable {
			clear(l.troubles)
		}
		t = unreadable{why, l.begin}
		l.troubles[name] = t
	}
	return l.doubt(alarm.EventUndecodable, "rows of table "+name+" could not be read at "+t.since.String()+" of source "+
		l.o.Source+": "+t.why+". Keys of the table may be stale. All other tables are read on, and this one from where it can "+
		"be again; its keys are forgotten with its next definition that can be read", of...)
}
