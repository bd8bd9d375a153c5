package binlog

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
)

func TestSQLTypes(t *testing.T) {
	for text, want := range map[string]sqlType{
		"int":                                 {base: "int"},
		"int(5) unsigned zerofill":            {base: "int", args: []int{5}, unsigned: true, zerofill: true},
		"INT(5) ZEROFILL":                     {base: "int", args: []int{5}, unsigned: true, zerofill: true},
		"Integer Unsigned":                    {base: "int", unsigned: true},
		"DOUBLE PRECISION(10, 2)":             {base: "double", args: []int{10, 2}},
		"real":                                {base: "double"},
		"dec(5)":                              {base: "decimal", args: []int{5}},
		"bool":                                {base: "tinyint"},
		"serial":                              {base: "bigint", unsigned: true},
		"character varying (20)":              {base: "varchar", args: []int{20}},
		"national character varying(20)":      {base: "varchar", args: []int{20}},
		"national varchar(20)":                {base: "varchar", args: []int{20}},
		"long varbinary":                      {base: "mediumblob"},
		"varchar(10) /*M!100301 COMPRESSED*/": {base: "varchar", args: []int{10}},
		"datetime(3) /* mariadb-5.3 */":       {base: "datetime", args: []int{3}},
		"enum('a','it''s','x\\\\y','\\'', 'trailing  ')": {
			base:   "enum",
			labels: []string{"a", "it's", `x\y`, "'", "trailing"},
		},
		"set('','ü,')": {base: "set", labels: []string{"", "ü,"}},
	} {
		got, err := parseSQLType(text)
		if err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(sqlType{})) {
			t.Errorf("%s: %v\n%s", text, err, cmp.Diff(want, got, cmp.AllowUnexported(sqlType{})))
		}
	}
	for _, bad := range []string{
		"", "(5)", "int(", "int(5", "int(x)", "enum('a", "enum('a'", "enum('a' 'b')",
		"set('a\\",
	} {
		if got, err := parseSQLType(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
}

// tableMap returns a TABLE_MAP for tests of Describe.
func tableMap(flavor event.Flavor, columns ...MapColumn) *TableMap {
	m := &TableMap{Schema: "d", Name: "t", Flavor: flavor, Columns: columns}
	m.HasNames = columns[0].Name != ""
	m.HasSignedness, m.HasCharsets = m.HasNames, m.HasNames
	return m
}

// Without names, a definition that cannot be that of the rows is refused, and the error says why.
func TestWrongDefinitionsAreNoticed(t *testing.T) {
	const utf8, latin1 = "utf8mb4_0900_ai_ci", "latin1_swedish_ci"
	for _, c := range []struct {
		mc   MapColumn
		ok   []ColumnInfo
		fail []string
	}{
		{
			MapColumn{Type: ColumnLong},
			[]ColumnInfo{{Type: "int"}, {Type: "int(3) unsigned"}, {Type: "some new type"}},
			[]string{"bigint", "varchar(3)", "date", "bit(1)", "enum('a')"},
		},
		{MapColumn{Type: ColumnVarchar, Meta: 80}, []ColumnInfo{
			{Type: "varchar(20)", Collation: utf8},
			{Type: "varchar(80)", Collation: latin1},
			{Type: "varbinary(80)"},
			{Type: "varchar(20)"},
		}, []string{"varbinary(20)", "int", "text"}},
		{
			MapColumn{Type: ColumnString, Meta: 40},
			[]ColumnInfo{{Type: "char(10)", Collation: utf8}, {Type: "binary(40)"}},
			[]string{"binary(10)", "uuid", "inet4"},
		},
		{
			MapColumn{Type: ColumnNewDecimal, Meta: 10<<8 | 2},
			[]ColumnInfo{{Type: "decimal(10,2)"}},
			[]string{"decimal(10,3)", "decimal"},
		},
		{
			MapColumn{Type: ColumnDatetime2, Meta: 3},
			[]ColumnInfo{{Type: "datetime(3)"}},
			[]string{"datetime", "timestamp(3)", "time(3)"},
		},
		{MapColumn{Type: ColumnBit, Meta: 1<<8 | 2}, []ColumnInfo{{Type: "bit(10)"}}, []string{"bit(9)", "bit"}},
		{
			MapColumn{Type: ColumnBlob, Meta: 2},
			[]ColumnInfo{{Type: "text", Collation: utf8}, {Type: "blob"}},
			[]string{"longtext", "tinyblob", "json"},
		},
		{
			MapColumn{Type: ColumnBlob, Meta: 4},
			[]ColumnInfo{{Type: "longtext", Collation: utf8}, {Type: "longblob"}},
			[]string{"text", "json"}, // which is another name of longtext on MariaDB only
		},
		{
			MapColumn{Type: ColumnSet, Meta: 1},
			[]ColumnInfo{{Type: "set('a','b')"}},
			[]string{"set('1','2','3','4','5','6','7','8','9')", "enum('a')"},
		},
		{MapColumn{Type: ColumnEnum, Meta: 1}, []ColumnInfo{{Type: "enum('a','b')"}}, []string{"set('a')", "char(1)"}},
	} {
		m := tableMap(event.MySQL, c.mc)
		for _, info := range c.ok {
			info.Name = "c"
			d, err := Describe(m, []ColumnInfo{info}, nil)
			if err != nil || d.Table.Columns[0].Name != "c" || d.Table.Columns[0].Type != info.Type {
				t.Errorf("%s as %s: %v", c.mc.String(), info.Type, err)
			}
		}
		for _, text := range c.fail {
			_, err := Describe(m, []ColumnInfo{{Name: "c", Type: text}}, nil)
			var wrong *MismatchError
			if !errors.As(err, &wrong) || wrong.Column != 0 || !strings.Contains(err.Error(), text) {
				t.Errorf("%s as %s: %v", c.mc.String(), text, err)
			}
		}
	}
	json := []ColumnInfo{{Name: "c", Type: "json", Collation: "utf8mb4_bin"}}
	if d, err := Describe(tableMap(event.MariaDB, MapColumn{Type: ColumnBlob, Meta: 4}), json, nil); err != nil ||
		d.Table.Columns[0].Class != event.ClassText {
		t.Errorf("MariaDB's json: %v", err)
	}
	var wrong *MismatchError
	if _, err := Describe(tableMap(event.MySQL, MapColumn{Type: ColumnLong}), nil, nil); !errors.As(err, &wrong) ||
		wrong.Column != -1 {
		t.Errorf("no definition at all: %v", err)
	}
}

// With names, the definition only adds what the binlog does not say, by name, and may be of another time.
func TestNamesInTheBinlogGoFirst(t *testing.T) {
	m := tableMap(event.MySQL,
		MapColumn{Name: "id", Type: ColumnLong, Unsigned: true}, MapColumn{Name: "f", Type: ColumnFloat, Meta: 4},
		MapColumn{Name: "s", Type: ColumnVarchar, Meta: 10, Collation: 8}, MapColumn{
			Name: "e", Type: ColumnEnum, Meta: 1,
			Labels: [][]byte{[]byte("a"), []byte("\xfc")}, Collation: 8,
		}, MapColumn{Name: "k", Type: ColumnVarchar, Meta: 10, Collation: 77777})
	info := []ColumnInfo{
		{Name: "E", Type: "enum('a','b','c')"}, // of another time
		{Name: "F", Type: "float(7,3)"},
		{Name: "S", Type: "bigint"},
		{Name: "new", Type: "date"},
		{Name: "ID", Type: "int(6) unsigned zerofill"},
	}
	d, err := Describe(m, info, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := d.Columns
	if a[0].Zerofill != 6 || !a[0].Unsigned || a[1].Scale != 3 || a[2].Charset.Name() != "latin1" ||
		!slices.Equal(a[3].Labels, []string{"a", "ü"}) {
		t.Errorf("attributes %+v", a)
	}
	if a[4].Unknown == nil || !strings.Contains(a[4].Unknown.Error(), "77777") {
		t.Errorf("an unknown collation: %v", a[4].Unknown)
	}
	want := []event.Column{
		{Name: "id", Type: "int(6) unsigned zerofill", Class: event.ClassInt, Unsigned: true},
		{Name: "f", Type: "float(7,3)", Class: event.ClassFloat},
		{Name: "s", Type: "varchar of 10 bytes", Class: event.ClassText, Collation: "latin1_swedish_ci"},
		{Name: "e", Type: "enum", Class: event.ClassEnum, Collation: "latin1_swedish_ci"},
		{Name: "k", Type: "varchar of 10 bytes"},
	}
	if diff := cmp.Diff(want, d.Table.Columns); diff != "" {
		t.Error(diff)
	}
	d.Needs = []event.Need{{Column: 4, Text: true}}
	p, err := newTablePlan(m, d)
	if err != nil || p.unknown == nil ||
		!strings.Contains(p.unknown.Error(), "column k: its collation, number 77777, is not known") {
		t.Errorf("the text of an unknown collation: %v, %v", err, p.unknown)
	}
	d.Needs[0].Text = false
	if p, err := newTablePlan(m, d); err != nil || p.unknown != nil {
		t.Errorf("to compare it: %v, %v", err, p.unknown)
	}
}

// MariaDB's UUID looks like a BINARY(16) in the binlog: without the definition it is not guessed.
func TestUUIDsAreNotGuessed(t *testing.T) {
	m := tableMap(event.MariaDB, MapColumn{Name: "u", Type: ColumnString, Meta: 16, Collation: 63})
	d, err := Describe(m, nil, nil)
	if err != nil || d.Columns[0].Unknown == nil {
		t.Errorf("%v, %v", err, d.Columns[0].Unknown)
	}
	for text, class := range map[string]event.Class{
		"uuid": event.ClassUUID, "inet6": event.ClassInet,
		"binary(16)": event.ClassBinary,
	} {
		d, err := Describe(m, []ColumnInfo{{Name: "u", Type: text}}, nil)
		if err != nil || d.Columns[0].Unknown != nil || d.Table.Columns[0].Class != class {
			t.Errorf("%s: %v, %+v", text, err, d.Columns[0])
		}
	}
	m.Flavor = event.MySQL
	if d, err := Describe(m, nil, nil); err != nil || d.Columns[0].Unknown != nil ||
		d.Columns[0].Class != event.ClassBinary {
		t.Errorf("MySQL: %v, %+v", err, d.Columns[0])
	}
}
