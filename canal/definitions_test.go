package canal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// run has the loop follow a statement of the binlog.
func (p *player) run(t *testing.T, sql string) {
	t.Helper()
	st := p.tables.parse(binlog.Header{}, &binlog.Query{Charset: 255, ServerCharset: 255, SQL: []byte(sql)})
	if err := p.statement(binlog.Header{}, &st); err != nil {
		t.Fatal(err)
	}
	testbed.Must(t, p.steps())
}

func TestDDLThatLeavesATableAsItWasMakesNoNewDefinitionOfIt(t *testing.T) {
	p := play(t, transactions(t, 1, 1), true)
	const n = 200
	for i := range n {
		p.once(t)
		p.run(t, fmt.Sprintf("ALTER TABLE shop.other COMMENT 'c%d'", i))
	}
	if len(p.sink.bound) != 1 {
		t.Errorf("%d definitions of one table after %d statements about another", len(p.sink.bound), n)
	}
	p.run(t, "ALTER TABLE shop.product RENAME COLUMN sku TO stock_unit")
	p.once(t)
	if len(p.sink.bound) != 2 {
		t.Errorf("%d definitions of a table that was altered once", len(p.sink.bound))
	}
	if len(p.tables.kept.last) != 1 {
		t.Errorf("%d definitions are kept of one table", len(p.tables.kept.last))
	}
}

func TestDefinitionsAreBoundedInBytes(t *testing.T) {
	var ds definitions
	for i := range 20 {
		d := &binlog.Definition{
			Table:   &event.Table{Schema: "shop", Name: fmt.Sprint("t", i), Columns: make([]event.Column, 1)},
			Columns: []binlog.Attributes{{Labels: []string{strings.Repeat("x", maxDefinitionBytes/5)}}},
		}
		if ds.one(d) != d {
			t.Fatal("another definition stands for a new one")
		}
		same := &binlog.Definition{
			Table:   &event.Table{Schema: "shop", Name: d.Table.Name, Columns: make([]event.Column, 1)},
			Columns: d.Columns,
		}
		if ds.one(same) != d {
			t.Fatal("an equal definition is kept twice")
		}
		sum := 0
		for _, d := range ds.last {
			sum += weigh(d)
		}
		if sum != ds.bytes || sum > maxDefinitionBytes {
			t.Fatalf("%d bytes are kept, counted as %d, want at most %d", sum, ds.bytes, maxDefinitionBytes)
		}
	}
}
