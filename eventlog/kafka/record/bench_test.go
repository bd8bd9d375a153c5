package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
)

// The benchmarks' unit is one key. "rows" are rows events with many keys each, as a statement makes them where
// binlog_row_event_max_size is raised; "events" is what is left in one of a dozen partitions of the rows events of 8
// KiB that a statement makes by default; "transactions" are of one row each.
var shapes = []struct {
	name         string
	rows, events int // keys in an event, events in a transaction
}{{"rows", 250, 4}, {"events", 6, 20}, {"transactions", 1, 1}}

const benchKeys = 4000

func benchBatch(rows, events int) *event.Batch {
	var b event.Batch
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range benchKeys {
		tx := i / (rows * events)
		if i%rows == 0 {
			b.AddOrigin(event.Origin{
				Table: "shop.product", Event: event.Version{Epoch: 1, File: 112, Pos: 4_000_000 + 300*uint64(i)}, D: time.Second,
				Tx: event.Tx{
					GTID:      event.GTID{UUID: uuid(62), Number: uint64(tx) + 1},
					Committed: begin.Add(time.Duration(tx) * 123 * time.Microsecond),
				},
			})
		}
		b.Add(strconv.AppendInt(append(b.Text(), "product:"...), 400_000+int64(i), 10), uint32(i%rows)+1, event.ActionDelete)
	}
	return &b
}

// perKey reports the time for one key; allocations and bytes are reported for one record.
func perKey(b *testing.B, size int) {
	b.ReportAllocs()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchKeys, "ns/key")
	b.ReportMetric(float64(size)/benchKeys, "bytes/key")
}

var header = Header{
	Source: "main", Term: 3, Seq: 17, Prev: event.Version{Epoch: 1, File: 112, Pos: 4, Row: 1},
	Age: time.Second,
}

func BenchmarkEncode(b *testing.B) {
	for _, s := range shapes {
		batch := benchBatch(s.rows, s.events)
		b.Run(s.name+"/ours", func(b *testing.B) {
			var e Encoder
			var data []byte
			for b.Loop() {
				data = encode(&e, header, batch)
			}
			perKey(b, len(data))
		})
		doc := plainOf(b, encode(new(Encoder), header, batch))
		b.Run(s.name+"/encoding/json", func(b *testing.B) {
			var data []byte
			for b.Loop() {
				data, _ = json.Marshal(doc)
			}
			perKey(b, len(data))
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, s := range shapes {
		data := encode(new(Encoder), header, benchBatch(s.rows, s.events))
		b.Run(s.name+"/ours", func(b *testing.B) {
			var p Parser
			for b.Loop() {
				if batch, _, err := p.Parse(data); err != nil || batch.Len() != benchKeys {
					b.Fatal(err)
				}
			}
			perKey(b, len(data))
		})
		b.Run(s.name+"/encoding/json", func(b *testing.B) {
			for b.Loop() {
				plainOf(b, data)
			}
			perKey(b, len(data))
		})
	}
}

// plainRecord is a record as a program that is not in a hurry reads it.
type plainRecord struct {
	Format  int           `json:"format"`
	Source  string        `json:"source"`
	Term    uint64        `json:"term"`
	Seq     uint64        `json:"seq"`
	Prev    string        `json:"prev"`
	Last    string        `json:"last"`
	Age     *int64        `json:"age_ms,omitempty"`
	Changes []plainChange `json:"changes"`
}

type plainChange struct {
	Table        string     `json:"table,omitempty"`
	Version      string     `json:"version"`
	GTID         string     `json:"gtid,omitempty"`
	Committed    *time.Time `json:"committed,omitempty"`
	SecondDelete *int64     `json:"second_delete_ms,omitempty"`
	Mapping      *int       `json:"mapping,omitempty"`
	Rows         []plainRow `json:"rows"`
}

type plainRow struct {
	Position     *uint64 // of a further event, instead of a row
	Row          uint32
	Delete       []string
	DeleteBase64 [][]byte
}

// UnmarshalJSON reads both forms of a row, or a position.
func (r *plainRow) UnmarshalJSON(data []byte) error {
	switch data[0] {
	default:
		return json.Unmarshal(data, &r.Position)
	case '{':
		return json.Unmarshal(data, &struct {
			Row          *uint32   `json:"row"`
			Delete       *[]string `json:"delete"`
			DeleteBase64 *[][]byte `json:"delete_base64"`
		}{&r.Row, &r.Delete, &r.DeleteBase64})
	case '[':
	}
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || len(all) == 0 {
		return err
	}
	r.Delete = make([]string, len(all)-1)
	err := json.Unmarshal(all[0], &r.Row)
	for i, key := range all[1:] {
		err = errors.Join(err, json.Unmarshal(key, &r.Delete[i]))
	}
	return err
}

// MarshalJSON writes the form of a row that has only keys to delete, or a position.
func (r plainRow) MarshalJSON() ([]byte, error) {
	if r.Position != nil {
		return json.Marshal(r.Position)
	}
	all := []any{r.Row}
	for _, key := range r.Delete {
		all = append(all, key)
	}
	return json.Marshal(all)
}

func plainOf(tb testing.TB, data []byte) *plainRecord {
	tb.Helper()
	var r plainRecord
	if err := json.Unmarshal(data, &r); err != nil {
		tb.Fatal(fmt.Errorf("%w in %.1000s", err, data))
	}
	return &r
}
