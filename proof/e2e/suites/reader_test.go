package suites

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/freshet/freshet/proof/testbed"
)

// place is a place in the binlog.
type place struct {
	file string
	pos  uint64
}

func end(t *testing.T, source *testbed.Server) place {
	t.Helper()
	file, pos := source.BinlogPosition(t)
	return place{file, pos}
}

// The columns whose values make keys, each by itself.
var keyed = []string{"a", "b", "c", "d", "i", "f1", "id", "pk", "col1", "c1", "c2", "c3"}

var (
	mapped = regexp.MustCompile(`^t[1-4]$`)
	names  = regexp.MustCompile(`\bt[1-4]\b`)
)

// isPlain says that a text is short, of printable ASCII, and neither begins nor ends with a space.
func isPlain(text string) bool {
	other := func(r rune) bool { return r < ' ' || r > '~' }
	return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, other) && text == strings.Trim(text, " ")
}

// finding is what another reader of binlogs, which shares nothing with freshet's, finds in a stretch of one.
type finding struct {
	// keys are those of the first mapping, for which it needs FULL metadata, each with the values that it is made of.
	keys map[string][]string
	// values are those of all columns, each after the name of its table, how many statements on that table came before,
	// and the number of its column: where a test takes random numbers, another column, or that of another table of the
	// same name, may have them on another server.
	values map[string]bool
	// largest is the size of the largest event, in bytes.
	largest int
	// statements counts the DDL that names a table.
	statements map[string]int
	// wide are collations in which text is not what its bytes say as ASCII.
	wide map[uint64]bool
}

// find returns what stands between two places. It leaves out values whose text the other reader does not have as the
// server prints it.
func find(t *testing.T, source *testbed.Server, from, to place) *finding {
	t.Helper()
	f := &finding{
		keys: map[string][]string{}, values: map[string]bool{}, wide: wide(t, source), statements: map[string]int{},
	}
	for file := from.file; ; file = following(t, file) {
		start := uint64(4)
		if file == from.file {
			start = from.pos
		}
		p := replication.NewBinlogParser()
		p.SetFlavor(string(source.Flavor))
		p.SetRowsEventDecodeFunc(func(rows *replication.RowsEvent, data []byte) error {
			if err := rows.Decode(data); err != nil { // a type that it does not know
				t.Logf("the other reader: %v", err)
				rows.Rows = nil
			}
			return nil
		})
		err := p.ParseFile(filepath.Join(source.Dir, "data", file), int64(start), func(e *replication.BinlogEvent) error {
			if file == to.file && uint64(e.Header.LogPos) > to.pos {
				return nil
			}
			f.largest = max(f.largest, int(e.Header.EventSize))
			switch e := e.Event.(type) {
			case *replication.RowsEvent:
				f.add(e)
			case *replication.QueryEvent:
				f.count(e.Query)
			}
			return nil
		})
		testbed.Must(t, err)
		if file == to.file {
			return f
		}
	}
}

func wide(t *testing.T, source *testbed.Server) map[uint64]bool {
	t.Helper()
	query := "SELECT id FROM information_schema.collations WHERE character_set_name IN ('ucs2', 'utf16', 'utf16le', " +
		"'utf32', 'swe7')"
	if source.Flavor == testbed.FlavorMariaDB {
		query = strings.Replace(query, "collations", "collation_character_set_applicability", 1)
	}
	all := map[uint64]bool{}
	for _, id := range list(t, source, query) {
		n, err := strconv.ParseUint(id, 10, 64)
		testbed.Must(t, err)
		all[n] = true
	}
	return all
}

// following returns the name of the next binlog.
func following(t *testing.T, file string) string {
	t.Helper()
	base, number, _ := strings.Cut(file, ".")
	n, err := strconv.Atoi(number)
	testbed.Must(t, err)
	return fmt.Sprintf("%s.%06d", base, n+1)
}

// changes is the beginning of a statement that may make another table of a name.
var changes = regexp.MustCompile(`(?is)^\s*(?:create|drop|alter|rename|truncate)\b.{0,500}`)

// count counts a statement for the tables that it names.
func (f *finding) count(statement []byte) {
	for _, table := range names.FindAllString(string(changes.Find(statement)), -1) {
		f.statements[table]++
	}
}

// add adds the values of some rows.
func (f *finding) add(rows *replication.RowsEvent) {
	table := rows.Table
	if string(table.Schema) != "test" || !mapped.Match(table.Table) {
		return
	}
	columns, labels := table.ColumnNameString(), labelsOf(table)
	unsigned, collations := table.UnsignedMap(), table.CollationMap()
	for i := range int(table.ColumnCount) {
		for _, row := range rows.Rows {
			// Without metadata nobody knows the sign, nor the labels.
			for _, u := range []bool{unsigned[i], len(unsigned) == 0} {
				text, value := f.text(row[i], table.ColumnType[i], u, collations[i]), ""
				if value = text; table.IsEnumOrSetColumn(i) {
					value = fmt.Sprintf("number %v", row[i])
					text = labelled(row[i], labels[i], table.IsSetColumn(i))
				}
				value = normal(fmt.Sprintf("%s:%d:%d:%s", table.Table, f.statements[string(table.Table)], i, value))
				if !isPlain(value) {
					continue
				}
				f.values[value] = true
				if len(columns) > 0 && slices.Contains(keyed, strings.ToLower(columns[i])) && isPlain(text) {
					key := normal(fmt.Sprintf("%s:%s:%s", table.Table, strings.ToLower(columns[i]), text))
					if of := f.keys[key]; !slices.Contains(of, value) {
						f.keys[key] = append(of, value)
					}
				}
			}
		}
	}
}

// labelsOf returns the labels of each ENUM and SET that the binlog tells, by column.
func labelsOf(table *replication.TableMapEvent) map[int][]string {
	all := map[int][]string{}
	maps.Copy(all, table.EnumStrValueMap())
	maps.Copy(all, table.SetStrValueMap())
	return all
}

// labelled returns what a number of an ENUM or SET says, or "".
func labelled(v any, labels []string, set bool) string {
	n, ok := v.(int64)
	if !ok {
		return ""
	}
	if !set {
		if n < 1 || int(n) > len(labels) {
			return ""
		}
		return labels[n-1]
	}
	var all []string
	for i, l := range labels {
		if n&(1<<i) != 0 {
			all = append(all, l)
		}
	}
	return strings.Join(all, ",")
}

// text returns a value as the server prints it, or "" where that is not certain.
func (f *finding) text(v any, kind byte, unsigned bool, collation uint64) string {
	const binary = 63
	switch kind {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG,
		mysql.MYSQL_TYPE_LONGLONG:
		if v != nil {
			return integer(v, kind, unsigned)
		}
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDECIMAL,
		mysql.MYSQL_TYPE_DATETIME2:
		if text, ok := v.(string); ok && collation != binary && !f.wide[collation] {
			return text
		}
	case mysql.MYSQL_TYPE_BLOB:
		if text, ok := v.([]byte); ok && collation != binary && !f.wide[collation] {
			return string(text)
		}
	case mysql.MYSQL_TYPE_YEAR:
		if v != nil {
			return fmt.Sprint(v)
		}
	}
	return ""
}

func integer(v any, kind byte, unsigned bool) string {
	if unsigned {
		switch n := v.(type) {
		case int8:
			v = uint8(n)
		case int16:
			v = uint16(n)
		case int32:
			v = uint32(n)
			if kind == mysql.MYSQL_TYPE_INT24 {
				v = uint32(n) & (1<<24 - 1)
			}
		case int64:
			v = uint64(n)
		}
	}
	return fmt.Sprint(v)
}

var zeros = regexp.MustCompile(`:0+(\d+(\.\d+)?)$`)

// normal returns a key without the zeros of a ZEROFILL column, of which the binlog does not tell.
func normal(key string) string {
	last := max(strings.LastIndexByte(key, ':'), 0)
	if !strings.HasPrefix(key[last:], ":0") { // most do not, and there are many
		return key
	}
	return key[:last] + zeros.ReplaceAllString(key[last:], ":$1")
}

// deleted returns the keys in what freshet has sent to Redis.
func (f *freshet) deleted() map[string]bool {
	all := map[string]bool{}
	for _, k := range f.resp.Keys() {
		all[normal(k)] = true
	}
	return all
}
