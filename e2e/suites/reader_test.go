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

	"github.com/freshet/freshet/testbed"
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
var keyed = []string{"a", "b", "c", "d", "i", "f1", "id", "pk", "col1"}

var (
	mapped = regexp.MustCompile(`^t[1-4]$`)
	plain  = regexp.MustCompile(`^[!-~]([ -~]{0,62}[!-~])?$`)
)

// expected returns the keys of the first mapping that another reader of binlogs, which shares nothing with freshet's, finds
// between two places. It needs FULL metadata, and leaves out the types whose text it does not have as the server prints it.
func expected(t *testing.T, source *testbed.Server, from, to place) []string {
	t.Helper()
	keys := map[string]bool{}
	for file := from.file; ; file = following(t, file) {
		start := uint64(4)
		if file == from.file {
			start = from.pos
		}
		p := replication.NewBinlogParser()
		p.SetFlavor(mysql.MariaDBFlavor)
		err := p.ParseFile(filepath.Join(source.Dir, "data", file), int64(start), func(e *replication.BinlogEvent) error {
			if rows, ok := e.Event.(*replication.RowsEvent); ok && (file != to.file || uint64(e.Header.LogPos) <= to.pos) {
				addKeys(keys, rows)
			}
			return nil
		})
		testbed.Must(t, err)
		if file == to.file {
			return slices.Sorted(maps.Keys(keys))
		}
	}
}

// following returns the name of the next binlog.
func following(t *testing.T, file string) string {
	t.Helper()
	base, number, _ := strings.Cut(file, ".")
	n, err := strconv.Atoi(number)
	testbed.Must(t, err)
	return fmt.Sprintf("%s.%06d", base, n+1)
}

func addKeys(keys map[string]bool, rows *replication.RowsEvent) {
	table := rows.Table
	if string(table.Schema) != "test" || !mapped.Match(table.Table) {
		return
	}
	unsigned, collations := table.UnsignedMap(), table.CollationMap()
	for i, name := range table.ColumnNameString() {
		if !slices.Contains(keyed, strings.ToLower(name)) {
			continue
		}
		for _, row := range rows.Rows {
			if text := textOf(row[i], table.ColumnType[i], unsigned[i], collations[i]); plain.MatchString(text) {
				keys[normal(fmt.Sprintf("%s:%s:%s", table.Table, strings.ToLower(name), text))] = true
			}
		}
	}
}

// textOf returns a value as the server prints it, or "" where that is not certain.
func textOf(v any, kind byte, unsigned bool, collation uint64) string {
	const binary = 63
	switch kind {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_LONGLONG:
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
		if v != nil {
			return fmt.Sprint(v)
		}
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDECIMAL:
		if text, ok := v.(string); ok && collation != binary {
			return text
		}
	}
	return ""
}

var zeros = regexp.MustCompile(`:0+(\d+(\.\d+)?)$`)

// normal returns a key without the zeros of a ZEROFILL column, of which the binlog does not tell.
func normal(key string) string { return zeros.ReplaceAllString(key, ":$1") }

// without returns the keys that are not deleted.
func without(want []string, deleted map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(want), func(k string) bool { return deleted[k] })
}

// deleted returns the keys in what freshet has sent to Redis.
func (f *freshet) deleted() map[string]bool {
	all := map[string]bool{}
	for _, k := range f.resp.Keys() {
		all[normal(k)] = true
	}
	return all
}
