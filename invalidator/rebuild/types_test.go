package rebuild

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/document"
	"github.com/freshet/freshet/proof/testbed"
)

// columnTypes are all types that a value can be made of, with values at their edges.
func columnTypes(flavor testbed.Flavor) map[string][]string {
	types := map[string][]string{
		"bool": {"0", "1"}, "tinyint": {"-128", "127"}, "smallint unsigned": {"0", "65535"},
		"mediumint": {"-8388608", "8388607"},
		"int":       {"-2147483648", "2147483647"}, "int unsigned zerofill": {"7", "4294967295"},
		"bigint":          {"-9223372036854775808", "9223372036854775807"},
		"bigint unsigned": {"0", "18446744073709551615"}, "year": {"0", "1901", "2155"},
		"decimal(10,2)": {"-0.05", "9.90", "99999999.99"}, "decimal(65,30)": {"0", "-12345678901234567890.123456789"},
		"decimal(12,0)":          {"-7", "999999999999"},
		"decimal(10,3) zerofill": {"7", "1234567.891"}, "decimal(10,3) unsigned": {"0.001"},
		"float":       {"0", "0.1", "-1.5", "16777217", "3.4e38", "1.4e-45", "1e-5", "123456.7"},
		"double":      {"0", "0.1", "-1e300", "1e15", "1e-7", "9007199254740993e0", "123456789.123456789"},
		"float(10,3)": {"1.5", "-0.0004"}, "double(20,5)": {"1.5", "12345678.123456789"}, "float zerofill": {"1.5"},
		"double unsigned": {"2.5"},
		"date":            {"'2024-02-29'", "'0000-00-00'", "'2024-00-00'", "'9999-12-31'", "'2023-02-31'"},
		"time":            {"'00:00:00'", "'-838:59:59'", "'838:59:59'"}, "time(3)": {"'-00:00:00.001'", "'10:11:12'"},
		"time(6)": {"'100:00:00.5'"},
		"datetime": {
			"'2024-05-06 07:08:09'", "'0000-00-00'", "'2024-05-06'", "'2024-00-07 01:02:03'", "'2023-02-31 04:05:06'",
		},
		"datetime(1)":       {"'2024-05-06 07:08:09.9'", "'2024-05-06'"},
		"datetime(6)":       {"'2024-05-06 07:08:09.000001'", "'2024-05-06 07:08:09'", "'0000-00-00'"},
		"timestamp null":    {"'2024-05-06 07:08:09'", "'0000-00-00'"},
		"timestamp(3) null": {"'2024-05-06 07:08:09.12'", "'1970-01-01 00:00:01'"},
		"timestamp(6) null": {"'2038-01-19 03:14:07.999999'"},
		"char(10)":          {"''", "'a'", "'a '", "'ü€💩'"}, "varchar(40)": {"' a '", "'it''s \"\\\\\"\\n'"},
		"text": {"'日本'"}, "longtext": {"repeat('x', 70000)"},
		"varchar(20) character set latin1": {"'é'"}, "varchar(20) character set utf16": {"'💩'"},
		"char(20) character set gbk": {"'你好'"}, "varchar(20) collate utf8mb4_bin": {"'A'"},
		"binary(4)": {"x'00'", "x'61'", "x'00ff00ff'"}, "varbinary(20)": {"''", "x'0001ff'"}, "blob": {"x'00ff'"},
		"mediumblob": {"repeat(x'ab', 1000)"},
		"bit(1)":     {"0", "1"}, "bit(9)": {"0", "257"}, "bit(64)": {"18446744073709551615"},
		"enum('a','é','')": {"1", "2", "3", "'no such'"}, "set('a','b','ü')": {"0", "7", "5"},
		"enum('x','ö') character set latin1": {"2"},
		"geometry":                           {"st_geomfromtext('linestring(0 0,1 2)')", "point(-1.5,2)"},
		"point":                              {"point(1,2)"},
	}
	if flavor == testbed.FlavorMySQL {
		maps.Copy(types, map[string][]string{
			"json": {
				`'{"b": [1, 2.0, null, "ü\\n"], "a": {}}'`, `'null'`,
				`json_array(cast(1.10 as decimal(4,2)), date'2024-01-02', x'00ff')`,
			},
			"vector(3)": {"string_to_vector('[1,2,3]')", "string_to_vector('[-0.5]')"},
		})
		return types
	}
	maps.Copy(types, map[string][]string{
		"json": {`'{"b":  [1, "ü"]}'`}, "uuid": {"'123e4567-e89b-12d3-a456-426655440000'"}, "inet4": {"'10.0.0.1'"},
		"inet6": {"'2001:db8::1'", "'::ffff:1.2.3.4'"},
	})
	return types
}

// anyValue returns what has statements run in one session, which takes any value.
func anyValue(t *testing.T, s *testbed.Server) (exec func(statement string)) {
	t.Helper()
	conn, err := s.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, conn.Close()) })
	exec = func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%.300s: %v", statement, err)
		}
	}
	exec("set names utf8mb4")
	exec("set time_zone = '+00:00'")
	exec("set sql_mode = 'ALLOW_INVALID_DATES'")
	return exec
}

// A value is the same whether it is made of the row's image in the binlog or read by a query, whatever its type.
func TestAQuerySeesWhatTheRowImageHolds(t *testing.T) {
	both(t, func(t *testing.T, s *testbed.Server) {
		types := columnTypes(s.Flavor)
		names := slices.Sorted(maps.Keys(types))
		create, rows := "create table shop.t (id int primary key", 0
		for i, name := range names {
			create += fmt.Sprintf(", c%d %s", i, name)
			rows = max(rows, len(types[name]))
		}
		exec := anyValue(t, s)
		exec(create + ")")
		exec("flush binary logs")
		for row := range rows + 1 {
			values := []string{fmt.Sprint(row)}
			for _, name := range names {
				v := "null"
				if row < rows {
					v = types[name][row%len(types[name])]
				}
				values = append(values, v)
			}
			exec("insert into shop.t values (" + strings.Join(values, ",") + ")")
		}
		for _, numbers := range []bool{false, true} {
			change := func(q *Query) { q.DecimalNumbers = numbers }
			asJSON := as(t, event.FormJSON, "SELECT * FROM t WHERE id = :id", change)
			asHash := as(t, event.FormHash, "SELECT * FROM t WHERE id = :id", change)
			r := newRunner(t, options(s, asJSON, asHash))
			seen := 0
			images(t, s, func(table *event.Table, values []event.Value) {
				id := string(values[0].AppendText(nil))
				json, hash := documents(t, table, values, numbers)
				same(t, names, json, get(t, r, asJSON, id))
				same(t, names, hash, get(t, r, asHash, id))
				seen++
			})
			if seen != rows+1 {
				t.Errorf("%d rows of %d", seen, rows+1)
			}
		}
	})
}

// same compares the value from the row with that by the query, and names the first column that differs.
func same(t *testing.T, names []string, row, query string) {
	t.Helper()
	if row == query {
		return
	}
	at := 0
	for at < min(len(row), len(query)) && row[at] == query[at] {
		at++
	}
	column, place := "?", -1
	for i, name := range names {
		for _, mark := range []string{`"`, "|"} {
			if n := strings.LastIndex(row[:at], fmt.Sprintf("c%d%s", i, mark)); n > place {
				column, place = name, n
			}
		}
	}
	from := max(0, at-60)
	t.Errorf("about column %s:\nfrom row ...%.150s\nby query ...%.150s", column, row[from:], query[from:])
}

// documents writes a row image as the router does.
func documents(t *testing.T, table *event.Table, values []event.Value, numbers bool) (json, hash string) {
	t.Helper()
	fields := make([]document.Field, len(table.Columns))
	for i := range fields {
		fields[i] = document.Field{Name: table.Columns[i].Name, Column: &table.Columns[i]}
	}
	w, err := document.New(fields, document.Options{DecimalNumbers: numbers})
	testbed.Must(t, err)
	j, err := w.JSON(nil, values)
	testbed.Must(t, err)
	h, err := w.Hash(nil, values)
	testbed.Must(t, err)
	return string(j), joined(t, h)
}

// images calls f for each row that was inserted into shop.t, as the newest binlog file has it.
func images(t *testing.T, s *testbed.Server, f func(*event.Table, []event.Value)) {
	d, err := binlog.New(&definer{t, s}, binlog.Options{})
	testbed.Must(t, err)
	var change event.Change
	var one func(h binlog.Header, body []byte) error
	one = func(h binlog.Header, body []byte) error {
		switch {
		case h.Type == binlog.TypeTableMap:
			return d.TableMap(body)
		case h.Type == binlog.TypeTransactionPayload:
			p, err := d.Payload(body)
			if err != nil {
				return err
			}
			return p.Each(one)
		case h.Type.IsRows():
			return d.Rows(h, body, &change, func(c *event.Change) error {
				f(c.Table, c.After)
				return nil
			})
		}
		return nil
	}
	for _, ev := range dump(t, s) {
		h, body, err := d.Split(ev)
		testbed.Must(t, err)
		testbed.Must(t, one(h, body))
	}
}

// definer needs all columns.
type definer struct {
	t *testing.T
	s *testbed.Server
}

func (d *definer) Wanted(schema, _ []byte) bool { return string(schema) == "shop" }

func (d *definer) Define(m *binlog.TableMap) (*binlog.Definition, error) {
	rows, err := d.s.DB().QueryContext(d.t.Context(),
		"select column_name, column_type, ifnull(collation_name, '') from information_schema.columns where table_schema = 'shop' and table_name = ? order by ordinal_position", m.Name)
	testbed.Must(d.t, err)
	defer rows.Close()
	var info []binlog.ColumnInfo
	for rows.Next() {
		var c binlog.ColumnInfo
		testbed.Must(d.t, rows.Scan(&c.Name, &c.Type, &c.Collation))
		info = append(info, c)
	}
	def, err := binlog.Describe(m, info, nil)
	if err != nil {
		return nil, err
	}
	for i := range def.Columns {
		def.Needs = append(def.Needs, event.Need{Column: i, Text: true})
	}
	return def, nil
}

// dump returns the events of the newest binlog file.
func dump(t *testing.T, s *testbed.Server) [][]byte {
	t.Helper()
	file, _ := s.BinlogPosition(t)
	c, err := client.Connect(s.Addr, s.User, s.Password, "")
	testbed.Must(t, err)
	defer c.Close()
	_, err = c.Execute("set @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32', @mariadb_slave_capability=4")
	testbed.Must(t, err)
	b := append(make([]byte, 4, 64), mysql.COM_BINLOG_DUMP)
	b = binary.LittleEndian.AppendUint32(b, 4)
	b = binary.LittleEndian.AppendUint16(b, 1) // to the end of the file, and no further
	b = binary.LittleEndian.AppendUint32(b, 0xfffffff0)
	c.ResetSequence()
	testbed.Must(t, c.WritePacket(append(b, file...)))
	var events [][]byte
	for {
		p, err := c.ReadPacket()
		testbed.Must(t, err)
		if p[0] != mysql.OK_HEADER {
			return events
		}
		events = append(events, slices.Clone(p[1:]))
	}
}
