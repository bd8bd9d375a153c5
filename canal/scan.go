package canal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
)

// errEnough is returned by the function given to [Options.scan] to end it.
var errEnough = errors.New("enough")

// scan reads the binlog from a place to its end, on a connection of its own and by a name of its own. It calls each
// for every event, with the place where the event begins; events that the server makes up are left out. The place
// must be the beginning of an event; beyond 4 GiB, events before it come as well.
func (o *Options) scan(ctx context.Context, info *SourceInfo, from binlogPos,
	each func(w *walk, at binlogPos, h binlog.Header, body []byte) error,
) error {
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return err
	}
	defer s.close()
	// A second dump by the same name would end the first, be it our own or another scan's.
	id := drawServerID(append(s.replicas(info), info.ServerID, o.ServerID, o.drawn))
	if from.pos >= 1<<32 {
		from.pos = firstEvent // the command has 32 bits only
	}
	events, err := s.dump(info.Flavor, dumpRequest{
		file: from.file, pos: from.pos, serverID: id, uuid: replicaUUID(id, o.Source), untilEnd: true,
	})
	if err != nil {
		return err
	}
	dec, err := binlog.New(nobody{}, binlog.Options{VerifyChecksums: true})
	if err != nil {
		return err
	}
	w := &walk{dec: dec, flavor: info.Flavor}
	for {
		ev, err := events.next()
		if errors.Is(err, errStreamEnded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("binlog file %s: %w", from.file, err)
		}
		if err := w.event(ev, each); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return fmt.Errorf("binlog %s: %w", w.at, err)
		}
	}
}

// nobody wants no rows.
type nobody struct{}

func (nobody) Wanted(_, _ []byte) bool                             { return false }
func (nobody) Define(*binlog.TableMap) (*binlog.Definition, error) { return nil, nil }

// walk follows the places of a scan.
type walk struct {
	dec    *binlog.Decoder
	flavor event.Flavor
	at     binlogPos
}

func (w *walk) event(ev []byte, each func(w *walk, at binlogPos, h binlog.Header, body []byte) error) error {
	h, body, err := w.dec.Split(ev)
	if err != nil {
		return err
	}
	switch {
	case h.Type == binlog.TypeRotate:
		r, err := binlog.ParseRotate(body)
		if err != nil {
			return err
		}
		w.at, err = binlogPosOf(strings.Clone(r.File), r.Pos)
		return err
	case !inFile(h), h.Type == binlog.TypeFormatDescription && w.at.pos != firstEvent:
		return nil
	}
	limit := uint32(0)
	if w.flavor == event.MariaDB { // leaves out the text of statements
		limit = anyJump >> 1
	}
	if err := w.at.pass(h.Size, h.LogPos, 0, limit); err != nil {
		return err
	}
	begin := w.at
	begin.pos -= uint64(h.Size)
	return each(w, begin, h, body)
}

// statements calls each for the statement that an event holds, or the statements in a compressed transaction.
func (w *walk) statements(h binlog.Header, body []byte, each func(h binlog.Header, q *binlog.Query) error) error {
	switch {
	case isQuery(h.Type):
		q, err := w.dec.ParseQuery(h, body)
		if s := string(q.SQL); err != nil || s == "BEGIN" || s == "COMMIT" {
			return err
		}
		return each(h, &q)
	case h.Type == binlog.TypeTransactionPayload:
		p, err := w.dec.Payload(body)
		if err != nil {
			return err
		}
		return p.Each(func(h binlog.Header, body []byte) error { return w.statements(h, body, each) })
	}
	return nil
}

// inFile reports whether an event stands in the binlog file, and was not made up by the sender.
func inFile(h binlog.Header) bool {
	switch h.Type {
	case binlog.TypeHeartbeat, binlog.TypeHeartbeatV2:
		return false
	}
	return h.Flags&binlog.FlagArtificial == 0
}

// gtidsAt returns the transactions before a position of a file, which must be the end of a transaction.
func (o *Options) gtidsAt(ctx context.Context, info *SourceInfo, file string, pos uint64) (event.GTIDSet, error) {
	var set event.GTIDSet
	end := uint64(firstEvent) // of the last event before pos
	err := o.scan(ctx, info, binlogPos{file: file, pos: firstEvent},
		func(_ *walk, begin binlogPos, h binlog.Header, body []byte) error {
			if begin.file != file {
				return errEnough
			}
			if begin.pos >= pos && !opensFile(h.Type) {
				if end != pos && pos != firstEvent || !beginsGroup(h.Type) {
					return fmt.Errorf("position %d is not the end of a transaction", pos)
				}
				return errEnough
			}
			if begin.pos < pos {
				end = begin.pos + uint64(h.Size)
			}
			return addGTIDs(&set, h, body)
		})
	if err == nil && end != pos && pos != firstEvent {
		err = fmt.Errorf("binlog file %s: position %d is not the end of a transaction", file, pos)
	}
	return set, err
}

// opensFile reports whether events of the type stand at the beginning of each file and say what was before it.
func opensFile(t binlog.Type) bool {
	switch t {
	case binlog.TypeFormatDescription, binlog.TypePreviousGTIDs, binlog.TypeMariaGTIDList, binlog.TypeMariaStartEncryption:
		return true
	}
	return false
}

// beginsGroup reports whether events of the type stand between transactions.
func beginsGroup(t binlog.Type) bool {
	switch t {
	case binlog.TypeGTID, binlog.TypeGTIDTagged, binlog.TypeAnonymousGTID, binlog.TypeMariaGTID,
		binlog.TypeMariaBinlogCheckpoint, binlog.TypeStop, binlog.TypeRotate:
		return true
	}
	return false
}

// addGTIDs adds to the set what an event says of executed transactions.
func addGTIDs(set *event.GTIDSet, h binlog.Header, body []byte) error {
	switch h.Type {
	case binlog.TypePreviousGTIDs:
		s, err := parsePreviousGTIDs(body)
		if err != nil {
			return err
		}
		set.Union(&s)
	case binlog.TypeMariaGTIDList:
		s, err := parseGTIDList(body)
		if err != nil {
			return err
		}
		set.Union(&s)
	case binlog.TypeGTID, binlog.TypeGTIDTagged, binlog.TypeMariaGTID:
		g, err := binlog.ParseGTID(h, body)
		if err != nil {
			return err
		}
		set.Add(g.GTID)
	}
	return nil
}

// parsePreviousGTIDs reads the body of MySQL's PREVIOUS_GTIDS.
func parsePreviousGTIDs(body []byte) (event.GTIDSet, error) {
	s, err := mysql.DecodeMysqlGTIDSet(body)
	if err != nil {
		return event.GTIDSet{}, fmt.Errorf("previous gtids: %w", err)
	}
	return event.ParseGTIDSet(event.MySQL, s.String())
}

// parseGTIDList reads the body of MariaDB's GTID_LIST: a count, whose upper 4 bits are flags, and that many times
// domain, server and sequence number. A domain may come several times, once for each server.
// Source: MariaDB Knowledge Base, "GTID_LIST_EVENT".
func parseGTIDList(body []byte) (event.GTIDSet, error) {
	var set event.GTIDSet
	if len(body) < 4 {
		return set, errors.New("gtid list: too short")
	}
	n := int(binary.LittleEndian.Uint32(body) & (1<<28 - 1))
	body = body[4:]
	if len(body) < 16*n {
		return set, errors.New("gtid list: too short")
	}
	for ; n > 0; n-- {
		var one event.GTIDSet
		one.Add(event.GTID{
			Domain: binary.LittleEndian.Uint32(body), Server: binary.LittleEndian.Uint32(body[4:]),
			Number: binary.LittleEndian.Uint64(body[8:]),
		})
		set.Union(&one)
		body = body[16:]
	}
	return set, nil
}

// positionAt returns the position before the first transaction that was committed at t or later, by the source's
// clock, and to the second. MariaDB says only when the statement began that was committed.
func (o *Options) positionAt(ctx context.Context, s *session, info *SourceInfo, t time.Time) (event.Position, error) {
	files, err := s.binlogFiles()
	if err != nil {
		return event.Position{}, err
	}
	// The first file that was begun after t, and from there one back.
	var failed error
	i := sort.Search(len(files), func(i int) bool {
		begun, err := o.begun(ctx, info, files[i].Name)
		failed = errors.Join(failed, err)
		return !begun.Before(t)
	})
	if failed != nil {
		return event.Position{}, failed
	}
	if i == 0 {
		return event.Position{}, fmt.Errorf("the oldest binlog file, %s, was begun after %s: %w", files[0].Name,
			t.Format(time.RFC3339), ErrBeforeBinlog)
	}
	var set event.GTIDSet
	at := binlogPos{}
	err = o.scan(ctx, info, binlogPos{file: files[i-1].Name, pos: firstEvent},
		func(_ *walk, begin binlogPos, h binlog.Header, body []byte) error {
			at = begin
			if isGTID(h.Type) {
				g, err := binlog.ParseGTID(h, body)
				if err != nil {
					return err
				}
				// The event's own time is when the statement began, here or on a server before this one.
				if max(int64(h.Timestamp), committedAt(g.Committed, h).Unix()) >= t.Unix() {
					return errEnough
				}
			}
			at.pos += uint64(h.Size) // if nothing follows
			return addGTIDs(&set, h, body)
		})
	if err != nil {
		return event.Position{}, err
	}
	p := event.Position{Flavor: info.Flavor, Server: info.Server, File: at.file, Pos: at.pos}
	if info.GTID {
		p.GTIDs = set
	}
	return p, nil
}

// begun returns when a binlog file was begun.
func (o *Options) begun(ctx context.Context, info *SourceInfo, file string) (time.Time, error) {
	var t time.Time
	begin := binlogPos{file: file, pos: firstEvent}
	err := o.scan(ctx, info, begin, func(_ *walk, _ binlogPos, h binlog.Header, _ []byte) error {
		t = time.Unix(int64(h.Timestamp), 0)
		return errEnough
	})
	return t, err
}
