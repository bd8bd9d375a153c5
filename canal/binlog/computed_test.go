package binlog

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// computedTable is a Definer of a table with columns that an expression makes.
type computedTable struct{}

func (computedTable) Wanted(schema, name []byte) bool { return true }

func (computedTable) Define(m *TableMap) (*Definition, error) {
	var info []ColumnInfo
	for _, c := range []string{"id", "a", "v", "s", "b"} {
		info = append(info, ColumnInfo{Name: c, Type: "int"})
	}
	d, err := Describe(m, info, nil)
	if err == nil {
		d.Columns[2].Computed, d.Columns[3].Computed = true, true
		d.Needs = allColumns(d)
	}
	return d, err
}

// Bytes of UPDATE t1 SET a = 7 and of a DELETE, captured from MariaDB servers of the versions named, in a table (id INT
// PRIMARY KEY, a INT, v INT AS (a*3) VIRTUAL, s INT AS (a*5) STORED, b INT). What an image lacks is absent, and never
// what the image before has, if an expression makes it: the new key would stay without a word.
func TestAComputedColumnThatAnImageLacksIsAbsent(t *testing.T) {
	const tableMap = "030000000000010001640002743100050303030303001e010100040b0269640161017601730162080100"
	for _, c := range []struct {
		server, rows, want string
		of                 Type
	}{
		{
			"11.4.5 FULL_NODUP",
			"0300000000000100051f0ae00100000002000000060000000a00000009000000fc0700000023000000",
			"1 2 6 10 9 -> 1 7 ? 35 9", TypeUpdateRowsV1,
		},
		{
			"11.4.5 FULL",
			"0300000000000100051f1fe00100000002000000060000000a00000009000000e00100000007000000150000002300000009000000",
			"1 2 6 10 9 -> 1 7 21 35 9", TypeUpdateRowsV1,
		},
		{"11.4.5 MINIMAL", "030000000000010005010afe01000000fc0700000023000000", "1 ? ? ? ? -> 1 7 ? 35 ?", TypeUpdateRowsV1},
		{
			"11.8.9 FULL", "0300000000000100051313f8010000000200000009000000f8010000000700000009000000",
			"1 2 ? ? 9 -> 1 7 ? ? 9", TypeUpdateRowsV1,
		},
		{
			"11.8.9 FULL_NODUP", "0300000000000100051302f8010000000200000009000000fe07000000", "1 2 ? ? 9 -> 1 7 ? ? 9",
			TypeUpdateRowsV1,
		},
		{"11.8.9 MINIMAL", "0300000000000100050102fe01000000fe07000000", "1 ? ? ? ? -> 1 7 ? ? ?", TypeUpdateRowsV1},
		{"11.8.9 FULL, DELETE", "03000000000001000513f8010000000700000009000000", "1 7 ? ? 9 ->", TypeDeleteRowsV1},
	} {
		d := primed(t, false)
		d.definer = computedTable{}
		body, err := hex.DecodeString(tableMap)
		testbed.Must(t, err)
		testbed.Must(t, d.TableMap(body))
		body, err = hex.DecodeString(c.rows)
		testbed.Must(t, err)
		var change event.Change
		got := ""
		testbed.Must(t, d.Rows(Header{Type: c.of}, body, &change, func(c *event.Change) error {
			got = strings.TrimSpace(numbers(c.Before) + " -> " + numbers(c.After))
			return nil
		}))
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.server, got, c.want)
		}
	}
}

// numbers prints an image of numbers, with ? for what it lacks.
func numbers(image []event.Value) string {
	var all []string
	for i := range image {
		if image[i].Kind == event.Absent {
			all = append(all, "?")
			continue
		}
		all = append(all, fmt.Sprint(image[i].Num))
	}
	return strings.Join(all, " ")
}
