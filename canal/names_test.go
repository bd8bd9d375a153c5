package canal

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// TestNamesCompareAsTheServerComparesThem reads statements in another letter case than the tables' from a server that
// does not mind. (MySQL takes the setting only when its data directory is made.)
func TestNamesCompareAsTheServerComparesThem(t *testing.T) {
	t.Parallel()
	s := testbed.MariaDB(t, "--lower-case-table-names=1", "--binlog-row-metadata=MINIMAL")
	s.Exec(t, "create database Shop", "create table Shop.Product (id int primary key, v varchar(20))",
		"create table Shop.x (id int primary key)", "create table Shop.y (id int primary key)")
	o := Options{
		Address: s.Addr, Wanted: func(string, string) bool { return false },
		WantedFolded: func(schema, table string) bool {
			return schema == "shop" && (table == "" || table == "product" || table == "x")
		},
	}
	for _, c := range []struct {
		statements []string
		kind       alarm.Kind
	}{
		{[]string{"truncate SHOP.Product"}, alarm.TruncatedTable},
		{[]string{
			"set session binlog_format=STATEMENT", "insert into shop.PRODUCT values (5,'a')",
			"set session binlog_format=ROW",
		}, alarm.StatementLogged},
		{[]string{
			"use SHOP", "delete from Product", "alter table PRODUCT rename column v to W",
			"insert into pRoduct values (6,'b')", "rename table Product to sHop.Y2, y2 to product",
		}, alarm.TruncatedTable},
		{[]string{"drop table Shop.X"}, alarm.TruncatedTable},
		{[]string{"drop database SHOP"}, alarm.TruncatedTable},
	} {
		rec := newRecorder() // a first start, which asks for the columns
		rec.named = true
		r := reading(t, rec, o)
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		s.Exec(t, c.statements...)
		end := here(t, s)
		r.await(t, "the statements", func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
		if !r.alarmed(c.kind) {
			t.Errorf("%s: no alarm", c.statements)
		}
		for _, row := range r.rows {
			if strings.HasPrefix(row.text, "insert") && row.text != "insert shop.product (id=6,W=b)" {
				t.Errorf("%s: %s", c.statements, row.text)
			}
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestANameIsFoldedOnlyWhereTheServerDoes covers what no server on Linux does: names that are kept as they were written
// and compared without letter case (2).
func TestANameIsFoldedOnlyWhereTheServerDoes(t *testing.T) {
	p := play(t, transactions(t, 1, 1), true)
	var asked [][2]string
	note := func(schema, table string) bool { asked = append(asked, [2]string{schema, table}); return true }
	p.o.Wanted, p.o.WantedFolded = note, note
	for _, fold := range []bool{false, true} {
		p.tables.fold, asked = fold, nil
		st := p.tables.parse(binlog.Header{},
			&binlog.Query{Charset: 255, ServerCharset: 255, SQL: []byte("RENAME TABLE Shop.Ünï TO Shop.B")})
		p.tables.Wanted([]byte("Shop"), []byte("Ünï"))
		want, text := [2]string{"Shop", "Ünï"}, "Shop.Ünï Shop.B"
		if fold {
			want, text = [2]string{"shop", "ünï"}, "shop.ünï shop.b"
		}
		if a := st.Actions[0]; a.Table.String()+" "+a.To.String() != text || asked[0] != want {
			t.Errorf("fold %v: %s %s, asked for %q", fold, a.Table, a.To, asked[0])
		}
	}
}
