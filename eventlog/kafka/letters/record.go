package letters

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// format is the number in every document. Fields may be added to it; another number means another meaning.
const format = 1

// maxErrorText bounds the text of an error in a document, in bytes.
const maxErrorText = 1024

// document is the value of a record: a key that is parked, a dead letter, or a part of one.
type document struct {
	Format int `json:"format"`
	// Key is the Redis key; KeyBase64 where it is not valid UTF-8, which JSON would change.
	Key       string `json:"key,omitempty"`
	KeyBase64 []byte `json:"key_base64,omitempty"`
	Action    string `json:"action,omitempty"`
	Source    string `json:"source,omitempty"`
	Table     string `json:"table,omitempty"`
	// Version is epoch/file/position/row.
	Version string `json:"version,omitempty"`
	// Foreign: the version may be another key's.
	Foreign        bool      `json:"foreign,omitempty"`
	SecondDeleteMS int64     `json:"second_delete_ms,omitempty"`
	Error          string    `json:"error,omitempty"`
	Attempts       int       `json:"attempts,omitempty"`
	First          time.Time `json:"first,omitzero"`
	Last           time.Time `json:"last,omitzero"`
	Due            time.Time `json:"due,omitzero"`
	// Notices are told after the attempt that passes.
	Notices []retry.Notice `json:"notices,omitempty"`
	// Untold counts those that found no room.
	Untold int `json:"untold,omitempty"`
	// Record is a record that could not be read; a document with one is a dead letter without a key.
	Record *buried `json:"record,omitempty"`
	// PartOf names the letter that this is a part of; see [buried].Parts.
	PartOf string `json:"part_of,omitempty"`
	// Part is that part.
	Part *fragment `json:"part,omitempty"`
}

// buried is a record as it was found.
type buried struct {
	Topic     string    `json:"topic"`
	Partition int       `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time,omitzero"`
	fragment
	// Parts is how many records with the rest follow the letter's key with /1, /2, …
	Parts int `json:"parts,omitempty"`
}

// fragment is a piece of a record's key and value; null and empty are kept apart.
type fragment struct {
	Key   []byte `json:"key_base64"`
	Value []byte `json:"value_base64"`
}

func (b *buried) name() string { return fmt.Sprintf("%s/%d@%d", b.Topic, b.Partition, b.Offset) }

// encode writes a document as one line of JSON.
func encode(d *document) ([]byte, error) {
	d.Format = format
	d.Error = errorText(d.Error)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // for readers' sake
	if err := enc.Encode(d); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func errorText(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	return strings.ToValidUTF8(s, "?")
}

// decode reads a document. Fields that are not known are passed over.
func decode(data []byte) (*document, error) {
	if data == nil {
		return nil, errors.New("it has no value")
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("it is not a document of freshet: %w", err)
	}
	if d.Format != format {
		return nil, fmt.Errorf("its format is %d and %d is known: was it written by a newer freshet?", d.Format, format)
	}
	return &d, nil
}

func encodeEntry(e *retry.Entry) ([]byte, error) {
	if _, err := event.ParseAction(e.Action.String()); err != nil {
		return nil, err
	}
	d := document{
		Action: e.Action.String(), Source: e.Source, Table: e.Table, Version: e.Version.String(),
		Foreign: e.Foreign,
		// A fraction would be lost; a longer second delete is never wrong.
		SecondDeleteMS: int64((e.D + time.Millisecond - 1) / time.Millisecond),
		Error:          e.Error, Attempts: e.Attempts, First: e.First.UTC(), Last: e.Last.UTC(), Due: e.Due.UTC(),
		Notices: e.Notices, Untold: e.Untold,
	}
	if utf8.ValidString(e.Key) {
		d.Key = e.Key
	} else {
		d.KeyBase64 = []byte(e.Key)
	}
	return encode(&d)
}

func decodeEntry(data []byte) (retry.Entry, error) {
	d, err := decode(data)
	if err != nil {
		return retry.Entry{}, err
	}
	return d.entry()
}

// entry returns the key that a document is about.
func (d *document) entry() (retry.Entry, error) {
	action, err := event.ParseAction(d.Action)
	if err != nil {
		return retry.Entry{}, err
	}
	version, err := event.ParseVersion(d.Version)
	if err != nil {
		return retry.Entry{}, err
	}
	e := retry.Entry{
		Key: d.Key, Action: action, Source: d.Source, Table: d.Table, Version: version,
		Foreign: d.Foreign,
		D:       time.Duration(d.SecondDeleteMS) * time.Millisecond, Error: d.Error, Attempts: d.Attempts,
		First: d.First, Last: d.Last, Due: d.Due, Notices: d.Notices, Untold: d.Untold,
	}
	if d.KeyBase64 != nil {
		e.Key = string(d.KeyBase64)
	}
	return e, nil
}

// letterKey is the record key of a dead letter. It is made of what the letter says, so that one that is written again
// after an acknowledgement was lost replaces itself, and no other.
func letterKey(content ...[]byte) string {
	h := sha256.New()
	for _, c := range content {
		fmt.Fprintf(h, "%d:", len(c))
		h.Write(c)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func partKey(letter string, n int) string { return fmt.Sprintf("%s/%d", letter, n) }

// isPart reports whether a record's key is that of a part, which is no letter by itself.
func isPart(key []byte) bool { return len(key) > 33 && key[32] == '/' }
