package binlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

var (
	recordAgain = flag.Bool("record", false, "record testdata again from real servers, and write what it decodes to")
	decodeAgain = flag.Bool("golden", false, "write what testdata decodes to, as it was recorded")
)

// recording is what was recorded of one server: events, what information_schema said of the tables, and what the
// decoder made of it (which the tests against real servers confirmed).
type recording struct {
	name   string
	events [][]byte
	info   map[string][]ColumnInfo
}

func (r *recording) path(ext string) string { return filepath.Join("testdata", r.name+ext) }

func (r *recording) save(t *testing.T) {
	var b []byte
	for _, ev := range r.events {
		b = binary.AppendUvarint(b, uint64(len(ev)))
		b = append(b, ev...)
	}
	testbed.Must(t, os.MkdirAll("testdata", 0o755))
	testbed.Must(t, os.WriteFile(r.path(".events"), b, 0o644))
	j, err := json.MarshalIndent(r.info, "", " ")
	testbed.Must(t, err)
	testbed.Must(t, os.WriteFile(r.path(".json"), append(j, '\n'), 0o644))
}

func load(t testing.TB, name string) *recording {
	r := &recording{name: name}
	b, err := os.ReadFile(r.path(".events"))
	testbed.Must(t, err)
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		r.events = append(r.events, b[k:k+int(n)])
		b = b[k+int(n):]
	}
	j, err := os.ReadFile(r.path(".json"))
	testbed.Must(t, err)
	testbed.Must(t, json.Unmarshal(j, &r.info))
	return r
}

// render prints what the decoder makes from the events.
func (r *recording) render(t testing.TB) string {
	var out strings.Builder
	w := &wants{info: r.info, needs: allColumns}
	d, err := New(w, Options{VerifyChecksums: true})
	testbed.Must(t, err)
	testbed.Must(t, decode(t, d, r.events, func(c *event.Change) error {
		fmt.Fprintf(&out, "%s %s %d\n", c.Op, c.Table, c.Version.Row)
		for i := range c.Table.Columns {
			column := &c.Table.Columns[i]
			fmt.Fprintf(&out, "  %s %s:", column.Name, column.Type)
			for _, values := range [][]event.Value{c.Before, c.After} {
				if values == nil {
					continue
				}
				v := &values[i]
				switch v.Kind {
				case event.Absent:
					out.WriteString(" absent")
				case event.Null:
					out.WriteString(" NULL")
				case event.Opaque:
					fmt.Fprintf(&out, " opaque %x", v.Raw)
				default:
					fmt.Fprintf(&out, " %q", v.AppendText(nil))
				}
			}
			out.WriteByte('\n')
		}
		return nil
	}))
	return strings.Join(steering(t, d, r.events), "\n") + "\n\n" + out.String()
}

// What real servers wrote decodes to what it did when they were there to be asked.
func TestRecordedEvents(t *testing.T) {
	if *recordAgain {
		recordMySQL(t).save(t)
		recordMariaDB(t).save(t)
	}
	for _, name := range []string{"mysql", "mariadb"} {
		r := load(t, name)
		got := r.render(t)
		if *recordAgain || *decodeAgain {
			testbed.Must(t, os.WriteFile(r.path(".golden"), []byte(got), 0o644))
		}
		want, err := os.ReadFile(r.path(".golden"))
		testbed.Must(t, err)
		if got != string(want) {
			a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("%s: line %d: got\n%s, want\n%s", name, i+1, a[i], b[i])
				}
			}
			t.Fatalf("%s: %d lines, want %d", name, len(a), len(b))
		}
	}
}

// recordTypes adds a few rows of every type.
func (r *recording) recordTypes(t *testing.T, s *source, types []testType, prefix string) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i, types := range slices.Collect(slices.Chunk(types, 25)) {
		name := fmt.Sprintf("%s%d", prefix, i)
		s.create(t, name, types)
		r.info[name] = s.info(t, name)
		for row := range 3 {
			values := make([]string, len(types))
			for j, ty := range types {
				values[j] = ty.edges[(row*3)%len(ty.edges)]
				if row == 2 && ty.random != nil {
					values[j] = ty.random(rnd)
				}
				if (row+j)%7 == 3 {
					values[j] = "null"
				}
			}
			s.do(t, fmt.Sprintf("insert into d.%s values (%d,%s)", name, row, strings.Join(values, ",")))
		}
	}
}

func recordMySQL(t *testing.T) *recording {
	r := &recording{name: "mysql", info: map[string][]ColumnInfo{}}
	s := newSource(t, event.MySQL)
	s.do(t, "set global binlog_row_metadata=full")
	r.events = record(t, s.Server, func() {
		r.recordTypes(t, s, testTypes(event.MySQL), "full")
		s.do(t, "set global binlog_row_metadata=minimal", "use d", "create table j (id int primary key, j json, n int)")
		r.info["j"] = s.info(t, "j")
		s.do(t, "set session binlog_row_value_options=partial_json",
			`insert into j values (1,'{"x": 1, "y": "a long enough value"}',2)`, "update j set j=json_set(j,'$.x',5) where id=1",
			"set session binlog_row_image=minimal", "update j set n=7", "insert into j (id) values (2)",
			"set session binlog_transaction_compression=on", "update j set n=8", "delete from j",
			"set session binlog_transaction_compression=off", "set gtid_next='AUTOMATIC:blue'", "insert into j (id) values (3)",
			"set gtid_next='AUTOMATIC'", "xa start 'x'", "delete from j", "xa end 'x'", "xa prepare 'x'", "xa commit 'x'")
	})
	return r
}

func recordMariaDB(t *testing.T) *recording {
	r := &recording{name: "mariadb", info: map[string][]ColumnInfo{}}
	s := newSource(t, event.MariaDB)
	s.do(t, "set global binlog_row_metadata=full")
	r.events = record(t, s.Server, func() {
		r.recordTypes(t, s, testTypes(event.MariaDB), "full")
		s.do(t, "set global binlog_row_metadata=no_log", "set global mysql56_temporal_format=off")
		var types []testType
		for digits := range 7 {
			types = append(types, temporal(digits)...)
		}
		r.recordTypes(t, s, types, "old")
		s.do(t, "set global log_bin_compress_min_len=10", "set global log_bin_compress=on", "use d",
			"create table z (id int primary key, v varchar(100))",
			"insert into z values (1,repeat('x',100)), (2,repeat('y',90))")
		r.info["z"] = s.info(t, "z")
		s.do(t, "set session binlog_row_image=minimal", "update z set v=repeat('z',80)", "delete from z",
			"set global log_bin_compress=off",
			"xa start 'x'", "insert into z values (9,'')", "xa end 'x'", "xa prepare 'x'", "xa commit 'x'")
	})
	return r
}

// Every event of the recordings, cut off at every length, is an error or is not, and nothing worse.
func TestEventsCutOffAnywhere(t *testing.T) {
	for _, name := range []string{"mysql", "mariadb"} {
		r := load(t, name)
		w := &wants{info: r.info, needs: allColumns}
		d, err := New(w, Options{})
		testbed.Must(t, err)
		cut := 0
		for _, ev := range r.events {
			h, body, err := d.Split(ev)
			testbed.Must(t, err)
			for n := 0; n < len(body); n += 1 + len(body)/150 {
				if feed(d, h, bytes.Clone(body[:n])) != nil {
					cut++
				}
			}
			if h.Type == TypeTableMap {
				d.Forget()
			}
			testbed.Must(t, feed(d, h, body))
		}
		if cut < 1000 {
			t.Errorf("%s: only %d errors", name, cut)
		}
	}
}

// feed gives one event to whatever reads its type.
func feed(d *Decoder, h Header, body []byte) error {
	var err error
	switch h.Type {
	case TypeRotate:
		_, err = ParseRotate(body)
	case TypeGTID, TypeGTIDTagged, TypeAnonymousGTID, TypeMariaGTID:
		_, err = ParseGTID(h, body)
	case TypeQuery, TypeMariaQueryCompressed, TypeExecuteLoadQuery:
		_, err = d.ParseQuery(h, body)
	case TypeXAPrepare:
		_, err = ParseXAPrepare(body)
	case TypeHeartbeat, TypeHeartbeatV2:
		_, err = ParseHeartbeat(h, body)
	case TypeIncident:
		_, err = ParseIncident(body)
	case TypeTableMap:
		err = d.TableMap(body)
	case TypeTransactionPayload:
		err = unfold(d, body, func(h Header, body []byte) error { return feed(d, h, body) })
	case TypeFormatDescription, TypeStop, TypeXID:
	default:
		if !h.Type.IsRows() {
			return h.Ignorable()
		}
		var c event.Change
		err = d.Rows(h, body, &c, func(c *event.Change) error {
			for _, values := range [][]event.Value{c.Before, c.After} {
				for i := range values {
					if values[i].Kind != event.Opaque {
						values[i].AppendText(nil)
					}
				}
			}
			return nil
		})
	}
	return err
}
