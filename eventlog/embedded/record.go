package embedded

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
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
		return nil, fmt.Errorf("a record with the checksum %q in place of %s", record[:sealLen-1], want)
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

// text is a string of any bytes. JSON strings hold UTF-8 only and would silently change others, so that another key
// would be deleted: those are written as {"base64": "..."}.
type text string

type encodedText struct {
	Base64 string `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(encodedText{base64.StdEncoding.EncodeToString([]byte(t))})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var e encodedText
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		raw, err := base64.StdEncoding.DecodeString(e.Base64)
		*t = text(raw)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// span is a duration as Go writes it: 2s.
type span time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = span(d)
	return err
}

// version is a version as it prints itself.
type version event.Version

// MarshalText implements [encoding.TextMarshaler].
func (v version) MarshalText() ([]byte, error) { return []byte(event.Version(v).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (v *version) UnmarshalText(b []byte) error {
	p, err := event.ParseVersion(string(b))
	*v = version(p)
	return err
}

// action is an action by its name.
type action event.Action

// MarshalText implements [encoding.TextMarshaler]. It refuses what UnmarshalText would.
func (a action) MarshalText() ([]byte, error) {
	name := []byte(event.Action(a).String())
	var known action
	return name, known.UnmarshalText(name)
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *action) UnmarshalText(b []byte) error {
	for known := event.ActionDelete; known <= event.ActionDelete; known++ {
		if known.String() == string(b) {
			*a = action(known)
			return nil
		}
	}
	return fmt.Errorf("action %q is not known", b)
}

// entryRecord is a [retry.Entry] in the store.
type entryRecord struct {
	ID       uint64    `json:"id"`
	Key      text      `json:"key"`
	Action   action    `json:"action"`
	Source   string    `json:"source"`
	Table    string    `json:"table"`
	Version  version   `json:"version"`
	D        span      `json:"d"`
	Error    string    `json:"error"`
	Attempts int       `json:"attempts"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Due      time.Time `json:"due,omitzero"`
}

func encodeEntry(e *retry.Entry) ([]byte, error) {
	return encode(entryRecord{
		ID: e.ID, Key: text(e.Key), Action: action(e.Action), Source: e.Source, Table: e.Table, Version: version(e.Version),
		D: span(e.D), Error: errorText(e.Error), Attempts: e.Attempts,
		First: e.First.UTC(), Last: e.Last.UTC(), Due: e.Due.UTC(),
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
		Version: event.Version(r.Version), D: time.Duration(r.D), Error: r.Error, Attempts: r.Attempts,
		First: r.First, Last: r.Last, Due: r.Due,
	}, nil
}

// positionRecord is an [event.Position] in the store, but for its State, which has a record of its own: it is large
// and seldom changes.
type positionRecord struct {
	Flavor    event.Flavor `json:"flavor"`
	Server    string       `json:"server"`
	Epoch     uint32       `json:"epoch"`
	File      string       `json:"file"`
	Pos       uint64       `json:"pos"`
	GTIDs     string       `json:"gtids"`
	Committed time.Time    `json:"committed,omitzero"`
}

func encodePosition(p *event.Position) ([]byte, error) {
	return encode(positionRecord{
		Flavor: p.Flavor, Server: p.Server, Epoch: p.Epoch, File: p.File, Pos: p.Pos, GTIDs: p.GTIDs.String(),
		Committed: p.Committed.UTC(),
	})
}

func decodePosition(record []byte) (event.Position, error) {
	var r positionRecord
	if err := decode(record, &r); err != nil {
		return event.Position{}, err
	}
	gtids, err := event.ParseGTIDSet(r.Flavor, r.GTIDs)
	if err != nil {
		return event.Position{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return event.Position{
		Flavor: r.Flavor, Server: r.Server, Epoch: r.Epoch, File: r.File, Pos: r.Pos, GTIDs: gtids, Committed: r.Committed,
	}, nil
}

// stashGroup is a run of stashed keys that have all but the key in common.
type stashGroup struct {
	Table   string `json:"table"`
	Mapping int    `json:"mapping"`
	D       span   `json:"d"`
	Action  action `json:"action"`
	Keys    []text `json:"keys"`
}

func encodeChunk(keys []Stashed) ([]byte, error) {
	var groups []stashGroup
	for i := range keys {
		k := &keys[i]
		g := stashGroup{Table: k.Table, Mapping: k.Mapping, D: span(k.D), Action: action(k.Action)}
		if n := len(groups); n == 0 || !groups[n-1].like(&g) {
			groups = append(groups, g)
		}
		last := &groups[len(groups)-1]
		last.Keys = append(last.Keys, text(k.Key))
	}
	return encode(groups)
}

func (g *stashGroup) like(o *stashGroup) bool {
	return g.Table == o.Table && g.Mapping == o.Mapping && g.D == o.D && g.Action == o.Action
}

func decodeChunk(record []byte) ([]Stashed, error) {
	var groups []stashGroup
	if err := decode(record, &groups); err != nil {
		return nil, err
	}
	var keys []Stashed
	for i := range groups {
		g := &groups[i]
		if g.Action == 0 {
			return nil, fmt.Errorf("%w: keys without an action", ErrDamaged)
		}
		for _, k := range g.Keys {
			keys = append(keys, Stashed{
				Key: string(k), Table: g.Table, Mapping: g.Mapping, D: time.Duration(g.D), Action: event.Action(g.Action),
			})
		}
	}
	return keys, nil
}
