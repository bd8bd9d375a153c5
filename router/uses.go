package router

import (
	"github.com/freshet/freshet/event"
)

// use is one place where the type of a column matters.
type use struct {
	column int
	// other is the column that it is compared with, or -1.
	other int
	want  want
	// by is the operator or function.
	by string
	at int
}

type want uint8

const (
	wantNumber want = iota + 1
	wantText
	wantNoDecimal
)

// check returns what is wrong with a use, given the columns' types; nil where they are not known.
func (u *use) check(p *predicate, columns []*event.Column) *fault {
	c := columns[u.column]
	if c == nil || c.Class == event.ClassUnknown {
		return nil
	}
	name, number := p.columns[u.column].String(), c.IsNumber()
	switch {
	case u.other >= 0:
		o := columns[u.other]
		if o == nil || o.Class == event.ClassUnknown || o.IsNumber() == number {
			return nil
		}
		return &fault{
			u.at, name + " and " + p.columns[u.other].String() + " are a text and a number, which " + u.by +
				" does not take together",
			"convert one of them with int(), float() or string()",
		}
	case u.want == wantNumber && !number:
		return &fault{
			u.at, name + " is " + c.TypeName() + ", a text in a predicate, and " + u.by + " needs a number here",
			"write int(" + name + ") or float(" + name + ")",
		}
	case u.want == wantText && number:
		return &fault{
			u.at, name + " is " + c.TypeName() + ", a number in a predicate, and " + u.by + " needs a text here",
			"compare it with a number without quotes, or write string(" + name + ")",
		}
	case u.want == wantNoDecimal && c.Class == event.ClassDecimal:
		return &fault{u.at, u.by + "() does not take DECIMAL", "write " + u.by + "(float(" + name + "))"}
	}
	return nil
}
