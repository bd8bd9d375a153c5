package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/retry"
)

// A record is what is stored under a key: a checksum in eight hexadecimal digits, a space, and JSON, which a human
// with a bbolt browser can read. bbolt itself has checksums on its two root pages only.

// sealLen is the length of the checksum and the space.
const sealLen = 9

// maxErrorText bounds the text of an error in a record, in bytes.
const maxErrorText = 1024

func checksum(body []byte) uint32 { return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) }

// seal puts the checksum before the body.
func seal(body []byte) []byte {
	return append(fmt.Appendf(make([]byte, 0, sealLen+len(body)), "%08x ", checksum(body)), body...)
}

// unseal returns the body of a record whose checksum is right. It shares the record's memory.
func unseal(record []byte) ([]byte, error) {
	if len(record) < sealLen || record[sealLen-1] != ' ' {
		return nil, errors.New("a record without a checksum")
	}
	body := record[sealLen:]
	if want := fmt.Sprintf("%08x", checksum(body)); want != string(record[:sealLen-1]) {
		return nil, fmt.Errorf("a record with the checksum %q instead of %s", record[:sealLen-1], want)
	}
	return body, nil
}

// encode makes a record of v.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return seal(body), nil
}

// decode reads a record into v. What v holds shares no memory with the record.
func decode(record []byte, v any) error {
	body, err := unseal(record)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// entryRecord is a [retry.Entry] in the store.
type entryRecord struct {
	ID       uint64            `json:"id"`
	Key      checkpoint.Text   `json:"key"`
	Action   checkpoint.Action `json:"action"`
	Source   string            `json:"source"`
	Table    string            `json:"table"`
	Version  event.Version     `json:"version"`
	Foreign  bool              `json:"foreign,omitempty"`
	D        checkpoint.Span   `json:"d"`
	Error    string            `json:"error"`
	Attempts int               `json:"attempts"`
	First    time.Time         `json:"first"`
	Last     time.Time         `json:"last"`
	Due      time.Time         `json:"due,omitzero"`
	Notices  []retry.Notice    `json:"notices,omitempty"`
	Untold   int               `json:"untold,omitempty"`
}

func encodeEntry(e *retry.Entry) ([]byte, error) {
	return encode(entryRecord{
		ID: e.ID, Key: checkpoint.Text(e.Key), Action: checkpoint.Action(e.Action), Source: e.Source, Table: e.Table,
		Version: e.Version, Foreign: e.Foreign, D: checkpoint.Span(e.D), Error: errorText(e.Error), Attempts: e.Attempts,
		First: e.First.UTC(), Last: e.Last.UTC(), Due: e.Due.UTC(), Notices: e.Notices, Untold: e.Untold,
	})
}

func errorText(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	return strings.ToValidUTF8(s, "?")
}

func decodeEntry(record []byte) (retry.Entry, error) {
	var r entryRecord
	if err := decode(record, &r); err != nil {
		return retry.Entry{}, err
	}
	if r.Action == 0 {
		return retry.Entry{}, fmt.Errorf("%w: an entry without an action", ErrDamaged)
	}
	return retry.Entry{
		ID: r.ID, Key: string(r.Key), Action: event.Action(r.Action), Source: r.Source, Table: r.Table,
		Version: r.Version, Foreign: r.Foreign, D: time.Duration(r.D), Error: r.Error, Attempts: r.Attempts,
		First: r.First, Last: r.Last, Due: r.Due, Notices: r.Notices, Untold: r.Untold,
	}, nil
}

func encodePosition(p *event.Position) ([]byte, error) { return encode(checkpoint.PlaceOf(p)) }

func decodePosition(record []byte) (event.Position, error) {
	var place checkpoint.PositionJSON
	if err := decode(record, &place); err != nil {
		return event.Position{}, err
	}
	p, err := place.Position()
	if err != nil {
		return event.Position{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return p, nil
}
