package binlog

import (
	"slices"
	"testing"

	"github.com/freshet/freshet/event"
)

// A type that a TABLE_MAP can have is one whose length, class and text are known, or it is said that it has no text.
func TestEveryColumnTypeIsDecodedWhole(t *testing.T) {
	// What readType takes, one after the other, for the metadata of a type.
	metas := [][]byte{
		nil,
		{4},
		{8},
		{2},
		{10, 2},
		{2, 1},
		{byte(ColumnString), 10},
		{byte(ColumnEnum), 1},
		{byte(ColumnSet), 1},
	}
	// These stand for others, or within them.
	never := []ColumnType{ColumnDecimalOld, ColumnTypedArray, ColumnTinyBlob, ColumnMediumBlob, ColumnLongBlob}
	var inSQL []ColumnType
	for _, types := range columnTypes {
		inSQL = append(inSQL, types...)
	}
	for code := range 256 {
		kind := ColumnType(code)
		var col MapColumn
		taken := slices.ContainsFunc(metas, func(b []byte) bool {
			meta := cursor{b: b}
			col = MapColumn{}
			return col.readType(kind, &meta) == nil && !meta.bad && len(meta.b) == 0 && col.Type == kind
		})
		switch listed := columnKinds[code].name != ""; {
		case taken && !listed:
			t.Errorf("MapColumn.readType takes %s, columnKinds does not have it", kind)
		case listed && taken == slices.Contains(never, kind):
			t.Errorf("columnKinds has %s; MapColumn.readType takes it: %t", kind, taken)
		}
		if !taken {
			continue
		}
		if kind != ColumnNull && !slices.Contains(inSQL, kind) {
			t.Errorf("columnTypes says for no SQL type that its values may be %s", kind)
		}
		def, err := Describe(tableMap(event.MySQL, col),
			[]ColumnInfo{{Name: "c", Type: kind.sql(), Collation: "utf8mb4_bin"}}, nil)
		if err != nil {
			def, err = Describe(tableMap(event.MySQL, col),
				[]ColumnInfo{{Name: "c", Type: "a type that is not known", Collation: "utf8mb4_bin"}}, nil)
		}
		if err != nil {
			t.Errorf("Describe of %s: %v", kind, err)
			continue
		}
		a := &def.Columns[0]
		if a.Class == event.ClassUnknown && kind != ColumnNull {
			t.Errorf("the class of %s is not known: columnKinds, or setText, must say it", kind)
		}
		c := column{attributes: a}
		if err := c.setLayout(&col); err != nil {
			t.Errorf("column.setLayout of %s: %v", kind, err)
		}
		if a.Unknown != nil {
			continue // the attributes say why there is no text
		}
		if err := c.setRender(&col, event.MySQL); err != nil || c.render == renderNothing {
			t.Errorf("column.setRender of %s: %v", kind, err)
		}
	}
}
