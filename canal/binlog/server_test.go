package binlog

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// source is a real server and what is asked of it.
type source struct {
	*testbed.Server
	flavor event.Flavor
	// conn is one session: time_zone '+00:00', utf8mb4, and any value goes in.
	conn *sql.Conn
}

func newSource(t *testing.T, flavor event.Flavor, args ...string) *source {
	s := &source{flavor: flavor}
	if flavor == event.MySQL {
		s.Server = testbed.MySQL(t, args...)
	} else {
		s.Server = testbed.MariaDB(t, args...)
	}
	var err error
	s.conn, err = s.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, s.conn.Close()) })
	s.do(t, "set names utf8mb4", "set time_zone='+00:00'", "set sql_mode='ALLOW_INVALID_DATES'", "create database d")
	return s
}

func (s *source) do(t testing.TB, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := s.conn.ExecContext(context.Background(), q); err != nil {
			t.Fatalf("%s: %.300s: %v", s.flavor, q, err)
		}
	}
}

// rows returns all rows of a query as text; NULL is nil.
func (s *source) rows(t testing.TB, query string) [][]*string {
	t.Helper()
	rows, err := s.conn.QueryContext(context.Background(), query)
	if err != nil {
		t.Fatalf("%s: %.300s: %v", s.flavor, query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	testbed.Must(t, err)
	var out [][]*string
	for rows.Next() {
		raw := make([]sql.RawBytes, len(columns))
		into := make([]any, len(columns))
		for i := range raw {
			into[i] = &raw[i]
		}
		testbed.Must(t, rows.Scan(into...))
		row := make([]*string, len(columns))
		for i, r := range raw {
			if r != nil {
				v := string(r)
				row[i] = &v
			}
		}
		out = append(out, row)
	}
	testbed.Must(t, rows.Err())
	return out
}

// info returns what information_schema says of a table's columns.
func (s *source) info(t testing.TB, table string) []ColumnInfo {
	t.Helper()
	var out []ColumnInfo
	for _, r := range s.rows(t, "select column_name, column_type, ifnull(collation_name,'') from "+
		"information_schema.columns"+
		" where table_schema='d' and table_name='"+table+"' order by ordinal_position") {
		out = append(out, ColumnInfo{Name: *r[0], Type: *r[1], Collation: *r[2]})
	}
	return out
}

// create makes a table d.NAME with a column for each type.
func (s *source) create(t testing.TB, name string, types []testType) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "create table d.%s (id int primary key", name)
	for i, ty := range types {
		fmt.Fprintf(&b, ", c%d %s", i, ty.sql)
	}
	s.do(t, b.String()+") row_format=dynamic default charset utf8mb4")
}

// fill inserts the edges of all types, and then n rows of random values; some are NULL.
func (s *source) fill(t testing.TB, r *rand.Rand, name string, types []testType, n int) {
	t.Helper()
	edges := 0
	for _, ty := range types {
		edges = max(edges, len(ty.edges))
	}
	for row := range edges + n {
		values := make([]string, len(types))
		for i, ty := range types {
			switch {
			case row < len(ty.edges):
				values[i] = ty.edges[row]
			case r.IntN(8) == 0:
				values[i] = "null"
			case ty.random != nil:
				values[i] = ty.random(r)
			default:
				values[i] = ty.edges[r.IntN(len(ty.edges))]
			}
		}
		s.do(t, fmt.Sprintf("insert into d.%s values (%d,%s)", name, row, strings.Join(values, ",")))
	}
}

// texts returns, by id, what the server prints for each column: the text that keys are made with.
func (s *source) texts(t testing.TB, name string, types []testType) map[string][]*string {
	t.Helper()
	var b strings.Builder
	b.WriteString("select id")
	for i, ty := range types {
		fmt.Fprintf(&b, ", concat('product:', "+cmp.Or(ty.bytes, "%s")+")", fmt.Sprintf("c%d", i))
	}
	out := map[string][]*string{}
	for _, r := range s.rows(t, b.String()+" from d."+name) {
		out[*r[0]] = r[1:]
	}
	return out
}

// wants is a Definer for tests: needs picks columns, info knows the tables' columns.
type wants struct {
	info       map[string][]ColumnInfo
	collations *charset.Collations
	needs      func(d *Definition) []event.Need
	maps       []*TableMap
}

func (w *wants) Wanted(schema, name []byte) bool { return string(schema) == "d" }

func (w *wants) Define(m *TableMap) (*Definition, error) {
	w.maps = append(w.maps, m)
	d, err := Describe(m, w.info[m.Name], w.collations)
	if err != nil {
		return nil, err
	}
	d.Needs = w.needs(d)
	return d, nil
}

// allColumns needs every column, with its text where there is one.
func allColumns(d *Definition) []event.Need {
	out := make([]event.Need, len(d.Columns))
	for i := range out {
		out[i] = event.Need{Column: i, Text: d.Columns[i].Unknown == nil}
	}
	return out
}

// decode feeds events to a decoder and calls each for every row change.
func decode(t testing.TB, d *Decoder, events [][]byte, each func(c *event.Change) error) error {
	t.Helper()
	var c event.Change
	var one func(h Header, body []byte) error
	one = func(h Header, body []byte) error {
		switch {
		case h.Type == TypeTableMap:
			return d.TableMap(body)
		case h.Type.IsRows():
			if !d.payload.open {
				c.Version.Row = 0
			}
			return d.Rows(h, body, &c, each)
		case h.Type == TypeTransactionPayload:
			c.Version.Row = 0
			return unfold(d, body, one)
		case h.Type.Handling() == Handle:
			return nil
		}
		return h.Ignorable()
	}
	for _, ev := range events {
		h, body, err := d.Split(ev)
		if err != nil {
			return err
		}
		if err := one(h, body); err != nil {
			return err
		}
	}
	return nil
}

// check compares the values of a row image with what the server printed.
func check(t testing.TB, what string, types []testType, needs []event.Need, values []event.Value,
	want map[string][]*string,
) {
	t.Helper()
	byColumn := map[int]*event.Value{}
	for i, n := range needs {
		byColumn[n.Column] = &values[i]
	}
	id := byColumn[0]
	row, ok := want[string(id.AppendText(nil))]
	if !ok {
		t.Errorf("%s: the server has no row %s", what, id.AppendText(nil))
		return
	}
	for i, ty := range types {
		v := byColumn[i+1]
		if v == nil {
			continue
		}
		got, w := "NULL", "NULL"
		if row[i] != nil {
			w = *row[i]
		}
		if v.Kind != event.Null {
			got = "product:" + string(v.AppendText(nil))
		}
		if got != w {
			t.Errorf("%s: row %s: %s\n got %s\nwant %s (raw %x, kind %d)", what, id.AppendText(nil), ty.sql,
				printable(got), printable(w), v.Raw, v.Kind)
		}
	}
}

func printable(s string) string { return fmt.Sprintf("%q %s", s, hex.EncodeToString([]byte(s))) }
