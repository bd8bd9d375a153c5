package router

import (
	"fmt"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/document"
)

// rowPlan is what a rebuilt value is made of, compiled for one table definition: the columns of a document, or the
// parameters of a query.
type rowPlan struct {
	// doc writes the document; nil for a query.
	doc  *document.Writer
	form event.Form
	// slots are the columns, in the order of the document's fields or of the query's parameters.
	slots []int
	// columns describe them, for explanations and for BIT columns, which a query wants as numbers.
	columns []*event.Column
	// broken: the table lacks one of them.
	broken bool
	// lacking is what is reported when an image lacks column i; large, when the value is too large.
	lacking []string
	large   string
}

// rebuilt compiles the row of a rebuild.
func (b *binder) rebuilt(r *rebuild, lost string) *rowPlan {
	p := &rowPlan{form: r.spec.As}
	p.large = spec.Sentence(r.spec.Pos.String(),
		fmt.Sprintf("a row of %s made a value larger than %d KiB, %s", b.t, MaxValue>>10, lost),
		"name the columns that the value needs, without the large ones")
	switch {
	case r.query != nil:
		b.parameters(p, r)
	case !r.spec.FromRow:
		p.broken = true // New has said why.
	default:
		b.document(p, r)
	}
	for _, c := range p.columns {
		p.lacking = append(p.lacking,
			spec.Sentence(r.spec.Pos.String(), fmt.Sprintf("a row image of %s lacks column %s, %s", b.t, c.Name, lost),
				imageAdvice(c)))
	}
	b.columns = append(b.columns, p.slots)
	return p
}

// parameters compiles the parameters of a query.
func (b *binder) parameters(p *rowPlan, r *rebuild) {
	for _, param := range r.query.Params {
		at := r.spec.Query.At(param.Offset)
		c := b.find(param.Name, at, "query")
		if c < 0 {
			p.broken = true
			continue
		}
		b.written(p, c)
	}
}

// document compiles the columns of a value.
func (b *binder) document(p *rowPlan, r *rebuild) {
	chosen := r.columns
	what := "column"
	if len(chosen) == 0 {
		what = "rebuild"
		chosen = b.all(r)
	}
	var fields []document.Field
	for _, f := range chosen {
		c := b.find(f.column, f.at, what)
		if c < 0 {
			p.broken = true
			continue
		}
		b.written(p, c)
		fields = append(fields, document.Field{Name: f.name, Column: &b.t.Columns[c]})
	}
	if p.broken {
		return
	}
	doc, err := document.New(fields, document.Options{DecimalNumbers: r.spec.Decimals == spec.DecimalsNumber})
	if err != nil {
		b.Add(r.spec.Pos, "rebuild: "+err.Error(), "name the columns that the value holds")
		p.broken = true
		return
	}
	p.doc = doc
}

// all returns all columns of the table, but for those that the server hides.
func (b *binder) all(r *rebuild) []chosen {
	var all []chosen
	for i := range b.t.Columns {
		if b.t.Columns[i].Hidden {
			continue
		}
		name := b.t.Columns[i].Name
		if name == expireAt && r.spec.ExpireAt > 0 {
			b.Add(r.spec.Pos, fmt.Sprintf("rebuild: table %s has a column expire_at, which is the name of what expire_at puts "+
				"there", b.t),
				`name the columns that the value holds, and give this one another name: "expire_at as expires"`)
		}
		all = append(all, chosen{column: name, name: name, at: r.spec.Pos})
	}
	return all
}

// written notes that a value holds the column.
func (b *binder) written(p *rowPlan, c int) {
	b.need(c, true)
	p.slots, p.columns = append(p.slots, c), append(p.columns, &b.t.Columns[c])
}
