package embedded

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/stash"
	"github.com/freshet/freshet/retry"
)

func TestARecordIsTextAHumanCanRead(t *testing.T) {
	e := entry(17)
	e.ID = 3
	record, err := encodeEntry(&e)
	must(t, err)
	want := `{"id":3,"key":"user:17","action":"delete","source":"default","table":"shop.user","version":"1/1/17/1","d":"2s",` +
		`"error":"NOPERM","attempts":3,"first":"1970-01-01T00:00:01Z","last":"1970-01-01T00:00:02Z","due":"1970-01-01T00:00:17.0000005Z"}`
	if d := cmp.Diff(want, string(record[sealLen:])); d != "" {
		t.Error(d)
	}
}

func TestARecordThatIsNotWholeIsRefused(t *testing.T) {
	e := entry(1)
	record, err := encodeEntry(&e)
	must(t, err)
	for i := range record {
		for _, damaged := range [][]byte{
			record[:i], append(append([]byte{}, record[:i]...), record[i]^4), append(bytes.Clone(record[:i]), record[i+1:]...),
		} {
			if len(damaged) == len(record) && i == len(record) {
				continue
			}
			if _, err := decodeEntry(damaged); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%q is read: %v", damaged, err)
			}
		}
	}
	for _, body := range []string{
		"", "null x", `{"key": 5}`, `{"version": "1/2"}`, `{"action": "explode"}`,
		`{"key": {"base64": "?"}}`, `{"d": "2"}`,
	} {
		if _, err := decodeEntry(seal([]byte(body))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q is read: %v", body, err)
		}
	}
	if _, err := decodePosition(seal([]byte(`{"flavor":"mysql","gtids":"x"}`))); !errors.Is(err, ErrDamaged) {
		t.Errorf("a GTID set of nonsense: %v", err)
	}
}

// TestEntriesSurviveTheirEncoding: any key, byte for byte.
func TestEntriesSurviveTheirEncoding(t *testing.T) {
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	rapid.Check(t, func(t *rapid.T) {
		want := retry.Entry{
			ID:  rapid.Uint64().Draw(t, "id"),
			Key: string(rapid.SliceOf(rapid.Byte()).Draw(t, "key")), Action: event.ActionDelete,
			Source: rapid.String().Draw(t, "source"), Table: rapid.String().Draw(t, "table"),
			Version: event.Version{
				Epoch: rapid.Uint32().Draw(t, "epoch"), File: rapid.Uint32().Draw(t, "file"),
				Pos: rapid.Uint64().Draw(t, "pos"), Row: rapid.Uint32().Draw(t, "row"),
			},
			D:        time.Duration(rapid.Int64().Draw(t, "d")),
			Attempts: rapid.Int().Draw(t, "attempts"), First: moment.Draw(t, "first"), Last: moment.Draw(t, "last"),
			Due: moment.Draw(t, "due"),
		}
		record, err := encodeEntry(&want)
		must(t, err)
		got, err := decodeEntry(record)
		must(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

// FuzzDecode: whatever stands in the file under a right checksum, reading it ends in a value or an error; and a value
// that was read can be written and read again.
func FuzzDecode(f *testing.F) {
	e := entry(1)
	e.Key = "\xff"
	entryRecord, err := encodeEntry(&e)
	must(f, err)
	p := position(f, 4)
	p.GTIDs = gtids(f, event.MySQL, uuid+":1-5:7,"+uuid+":tag:1-3")
	positionRecord, err := encodePosition(&p)
	must(f, err)
	chunkRecord, err := encode(stash.Keys(stashed("a", "\xff")))
	must(f, err)
	for _, seed := range [][]byte{entryRecord, positionRecord, chunkRecord} {
		f.Add(seed[sealLen:])
	}
	f.Add([]byte(`{"flavor":"mariadb","gtids":"0-1-2,3-4-5"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = unseal(body)
		record := seal(body)
		if e, err := decodeEntry(record); err == nil {
			again, err := encodeEntry(&e)
			must(t, err)
			got, err := decodeEntry(again)
			if err != nil || got.Key != e.Key || got.Version != e.Version {
				t.Errorf("entry %+v became %+v (%v)", e, got, err)
			}
		}
		if p, err := decodePosition(record); err == nil {
			again, err := encodePosition(&p)
			must(t, err)
			got, err := decodePosition(again)
			if err != nil || got.GTIDs.String() != p.GTIDs.String() || got.File != p.File || got.Pos != p.Pos {
				t.Errorf("position %s became %s (%v)", p.String(), got.String(), err)
			}
		}
		var keys, got stash.Keys
		if err := decode(record, &keys); err == nil {
			again, err := encode(keys)
			must(t, err)
			if err := decode(again, &got); err != nil || cmp.Diff(keys, got) != "" {
				t.Errorf("chunk %v became %v (%v)", keys, got, err)
			}
		}
	})
}
