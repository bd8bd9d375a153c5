package letters

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/retry/retrytest"
)

func TestARecordIsTextAHumanCanRead(t *testing.T) {
	e := retrytest.Entry(17)
	e.Error = "NOPERM <user> & more"
	record, err := encodeEntry(&e)
	must(t, err)
	want := `{"format":1,"key":"user:17","action":"delete","source":"default","table":"shop.user","version":"1/1/17/1","second_delete_ms":2000,` +
		`"error":"NOPERM <user> & more","attempts":3,"first":"1970-01-01T00:00:01Z","last":"1970-01-01T00:00:02Z","due":"1970-01-01T00:00:17.0000005Z"}`
	if d := cmp.Diff(want, string(record)); d != "" {
		t.Error(d)
	}
}

// TestEntriesSurviveTheirEncoding: any key, byte for byte.
func TestEntriesSurviveTheirEncoding(t *testing.T) {
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	rapid.Check(t, func(t *rapid.T) {
		want := retry.Entry{
			Key: string(rapid.SliceOf(rapid.Byte()).Draw(t, "key")), Action: event.ActionDelete,
			Source: rapid.String().Draw(t, "source"), Table: rapid.String().Draw(t, "table"),
			Version: event.Version{
				Epoch: rapid.Uint32().Draw(t, "epoch"), Pos: rapid.Uint64().Draw(t, "pos"),
				Row: rapid.Uint32().Draw(t, "row"),
			},
			D:        time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "d")) * time.Millisecond,
			Attempts: rapid.IntRange(0, 1000).Draw(t, "attempts"), First: moment.Draw(t, "first"), Last: moment.Draw(t, "last"),
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

func TestAFractionOfASecondDeleteIsRoundedUp(t *testing.T) {
	e := retrytest.Entry(1)
	e.D = time.Microsecond
	record, err := encodeEntry(&e)
	must(t, err)
	if got, err := decodeEntry(record); got.D != time.Millisecond || err != nil {
		t.Errorf("%s (%v)", got.D, err)
	}
}

func TestWhatIsNoDocumentIsRefused(t *testing.T) {
	for _, data := range []string{
		"", "null", "[]", `{"format":1}`, `{"format":2,"action":"delete","version":"1/1/1/1"}`,
		`{"action":"delete","version":"1/1/1/1"}`,
		`{"format":1,"action":"explode","version":"1/1/1/1"}`, `{"format":1,"action":"delete","version":"1/1"}`,
		`{"format":1,"action":"delete","version":"1/1/1/1","key":5}`,
		`{"format":1,"action":"delete","version":"1/1/1/1","key_base64":"?"}`,
	} {
		if e, err := decodeEntry([]byte(data)); err == nil {
			t.Errorf("%q is read as %+v", data, e)
		}
	}
	if _, err := decodeEntry([]byte(`{"format":1,"action":"delete","version":"1/1/1/1","new":[{}]}`)); err != nil {
		t.Errorf("a field of a later version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	e := retrytest.Entry(1)
	record, err := encodeEntry(&e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record)
	f.Add([]byte(`{"format":1,"record":{"topic":"t","key_base64":null,"value_base64":"aGk=","parts":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntry(data)
		if err != nil {
			return
		}
		again, err := encodeEntry(&e)
		if err != nil {
			return // a year beyond 9999
		}
		back, err := decodeEntry(again)
		if err != nil || back.Key != e.Key || back.Version != e.Version {
			t.Errorf("%q became %q (%v)", data, again, err)
		}
	})
}

func TestARecordIsSplitAndJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 40))
		f := fragment{bytes.Draw(t, "key"), bytes.Draw(t, "value")}
		most := rapid.IntRange(1, 50).Draw(t, "most")
		var got fragment
		for _, p := range split(f, most) {
			if len(p.Key)+len(p.Value) > most {
				t.Fatalf("a part of %d bytes", len(p.Key)+len(p.Value))
			}
			got.Key, got.Value = join(got.Key, p.Key), join(got.Value, p.Value)
		}
		if d := cmp.Diff(f, got); d != "" {
			t.Fatal(d)
		}
	})
}
