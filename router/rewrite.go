package router

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
)

// The names of our functions. None can be written in an expression.
const (
	fnColumn  = "$column"
	fnEqual   = "$equal"
	fnUnequal = "$unequal"
	fnMember  = "$in"
	fnBetween = "$between"
	fnAdd     = "$+"
	fnNegate  = "$negate"
)

// function makes f known to the compiler under a name that could not be declared by expr.Function: its type says
// what it returns.
func function[T any](c *conf.Config, name string, f func(args []any) (T, error)) {
	expr.Function(name, func(args ...any) (any, error) {
		v, err := f(args)
		if err != nil {
			return nil, failure{err}
		}
		return v, nil
	}, new(func(...any) T))(c)
}

// functions declares what the rewritten expression calls.
func (p *predicate) functions() expr.Option {
	return func(c *conf.Config) {
		function(c, fnColumn, func(a []any) (any, error) { return p.value(a[0].(int)) })
		function(c, fnEqual, func(a []any) (bool, error) { return equal(a[0], a[1]) })
		function(c, fnUnequal, func(a []any) (bool, error) {
			same, err := equal(a[0], a[1])
			return !same, err
		})
		function(c, fnMember, func(a []any) (bool, error) { return member(a[0], a[1]) })
		function(c, fnBetween, func(a []any) (bool, error) { return between(a[0], a[1], a[2]) })
		for op, holds := range map[string]func(o int) bool{
			"<":  func(o int) bool { return o < 0 },
			"<=": func(o int) bool { return o <= 0 },
			">":  func(o int) bool { return o > 0 },
			">=": func(o int) bool { return o >= 0 },
		} {
			function(c, "$"+op, func(a []any) (bool, error) {
				o, err := order(a[0], a[1])
				return holds(o), err
			})
		}
		function(c, fnAdd, func(a []any) (any, error) { return add(a[0], a[1]) })
		for _, op := range "-*/%" {
			function(c, "$"+string(op), func(a []any) (any, error) { return arithmetic(byte(op), a[0], a[1]) })
		}
		function(c, fnNegate, func(a []any) (any, error) { return arithmetic('-', 0, a[0]) })
		function(c, "$int", func(a []any) (any, error) { return toInt(a[0]) })
		function(c, "$float", func(a []any) (any, error) { return toFloat(a[0]) })
		function(c, "$abs", func(a []any) (any, error) { return absolute(a[0]) })
		function(c, "$max", func(a []any) (any, error) { return extreme(1, a) })
		function(c, "$min", func(a []any) (any, error) { return extreme(-1, a) })
	}
}

// rewriter puts our functions in the place of expr's operators and of row.x and old.x, and finds what a predicate
// must not say. It visits children first.
type rewriter struct {
	p      *predicate
	faults []fault
	// images are the row and old that no column has been read from yet.
	images map[*ast.IdentifierNode]bool
}

func (r *rewriter) fault(n ast.Node, what, do string) {
	r.faults = append(r.faults, fault{r.at(n), what, do})
}

func (r *rewriter) at(n ast.Node) int { return byteOffset(r.p.text.Value, n.Location().From) }

// finish returns the faults, those included that are known only at the end.
func (r *rewriter) finish() []fault {
	for n := range r.images {
		r.fault(n, n.Value+" stands alone", "write "+n.Value+".column: only columns named in the text are read")
	}
	return r.faults
}

// Visit implements ast.Visitor.
func (r *rewriter) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		r.identifier(n)
	case *ast.MemberNode:
		r.member(node, n)
	case *ast.FloatNode:
		ast.Patch(node, &ast.ConstantNode{Value: r.literal(n)})
	case *ast.BytesNode:
		// Binary columns are texts of any bytes.
		ast.Patch(node, &ast.StringNode{Value: string(n.Value)})
	case *ast.UnaryNode:
		r.unary(node, n)
	case *ast.BinaryNode:
		r.binary(node, n)
	case *ast.ConditionalNode:
		r.condition(n.Cond)
	case *ast.BuiltinNode:
		r.builtin(node, n)
	case *ast.CallNode:
		if _, ok := r.isColumn(n.Callee); ok {
			r.fault(n, "a column is no function", "remove the parentheses")
		}
	}
}

func (r *rewriter) identifier(n *ast.IdentifierNode) {
	switch n.Value {
	case "row", "old":
		if r.images == nil {
			r.images = map[*ast.IdentifierNode]bool{}
		}
		r.images[n] = true
	case "$env":
		r.fault(n, "$env is not available", "write row.column or old.column")
	}
}

// member turns row.x into the number of a column.
func (r *rewriter) member(node *ast.Node, n *ast.MemberNode) {
	property, constant := n.Property.(*ast.StringNode)
	if _, ok := r.isColumn(n.Node); ok && constant {
		r.fault(n, "a column has no fields", "write row.column")
		return
	}
	image, ok := n.Node.(*ast.IdentifierNode)
	if !ok || image.Value != "row" && image.Value != "old" {
		return
	}
	delete(r.images, image)
	if !constant {
		r.fault(n, "the column is not named", "write "+image.Value+".column: only columns named in the text are read")
		return
	}
	i := r.p.column(WhenColumn{Old: image.Value == "old", Name: property.Value, at: r.at(property)})
	r.call(node, fnColumn, &ast.IntegerNode{Value: i})
}

// isColumn returns the number of the column that the node reads.
func (r *rewriter) isColumn(n ast.Node) (int, bool) {
	if chain, ok := n.(*ast.ChainNode); ok {
		n = chain.Node
	}
	call, ok := n.(*ast.CallNode)
	if !ok {
		return 0, false
	}
	callee, ok := call.Callee.(*ast.IdentifierNode)
	if !ok || callee.Value != fnColumn {
		return 0, false
	}
	return call.Arguments[0].(*ast.IntegerNode).Value, true
}

func (r *rewriter) call(node *ast.Node, name string, args ...ast.Node) {
	callee := &ast.IdentifierNode{Value: name}
	callee.SetLocation((*node).Location())
	ast.Patch(node, &ast.CallNode{Callee: callee, Arguments: args})
}

// literal returns the exact value of a literal with a point or an exponent: its digits, not the float that they
// were read as.
func (r *rewriter) literal(n *ast.FloatNode) decimal {
	from, to := n.Location().From, n.Location().To
	text := r.p.text.Value[byteOffset(r.p.text.Value, from):byteOffset(r.p.text.Value, to)]
	if d, ok := parseDecimal(strings.ReplaceAll(text, "_", "")); ok {
		return d
	}
	if d, ok := parseDecimal(strconv.FormatFloat(n.Value, 'f', -1, 64)); ok {
		return d
	}
	return decimal{new(big.Rat).SetFloat64(n.Value)}
}

func (r *rewriter) unary(node *ast.Node, n *ast.UnaryNode) {
	switch n.Operator {
	case "!", "not":
		r.condition(n.Node)
	case "-":
		// A minus before an integer stays as it is: alike takes it for a number.
		switch c := n.Node.(type) {
		case *ast.IntegerNode:
		case *ast.ConstantNode:
			if d, ok := c.Value.(decimal); ok {
				ast.Patch(node, &ast.ConstantNode{Value: decimal{new(big.Rat).Neg(d.rat)}})
			}
		default:
			r.want(n.Node, wantNumber, "-")
			r.call(node, fnNegate, n.Node)
		}
	case "+":
		r.want(n.Node, wantNumber, "+")
		r.call(node, fnAdd, &ast.IntegerNode{}, n.Node)
	}
}

func (r *rewriter) binary(node *ast.Node, n *ast.BinaryNode) {
	switch n.Operator {
	case "&&", "and", "||", "or":
		r.condition(n.Left)
		r.condition(n.Right)
	case "==", "!=":
		r.alike(n.Left, n.Right, n.Operator)
		r.guarded(n.Left, n.Right)
		r.guarded(n.Right, n.Left)
		name := fnEqual
		if n.Operator == "!=" {
			name = fnUnequal
		}
		r.call(node, name, n.Left, n.Right)
	case "<", "<=", ">", ">=":
		r.alike(n.Left, n.Right, n.Operator)
		r.ordered(n.Left, n.Operator)
		r.ordered(n.Right, n.Operator)
		r.call(node, "$"+n.Operator, n.Left, n.Right)
	case "+":
		r.alike(n.Left, n.Right, n.Operator)
		r.call(node, fnAdd, n.Left, n.Right)
	case "-", "*", "/", "%":
		r.want(n.Left, wantNumber, n.Operator)
		r.want(n.Right, wantNumber, n.Operator)
		r.call(node, "$"+n.Operator, n.Left, n.Right)
	case "**", "^":
		r.fault(n, "powers are not available", "multiply")
	case "in":
		r.in(node, n)
	case "contains", "startsWith", "endsWith", "matches":
		r.want(n.Left, wantText, n.Operator)
		r.want(n.Right, wantText, n.Operator)
	}
}

func (r *rewriter) in(node *ast.Node, n *ast.BinaryNode) {
	switch list := n.Right.(type) {
	case *ast.BinaryNode:
		if list.Operator == ".." {
			r.want(n.Left, wantNumber, "in")
			r.call(node, fnBetween, n.Left, list.Left, list.Right)
			return
		}
	case *ast.ArrayNode:
		for _, e := range list.Nodes {
			r.alike(n.Left, e, "in")
		}
	}
	r.call(node, fnMember, n.Left, n.Right)
}

// builtin takes over the functions that must know our numbers, and keeps DECIMAL out of those that do not.
func (r *rewriter) builtin(node *ast.Node, n *ast.BuiltinNode) {
	switch n.Name {
	case "int", "float", "abs":
		if len(n.Arguments) == 1 {
			r.call(node, "$"+n.Name, n.Arguments...)
		}
	case "max", "min":
		if len(n.Arguments) > 1 {
			r.call(node, "$"+n.Name, n.Arguments...)
		}
	case "string", "type":
	case "all", "none", "any", "one", "count":
		if len(n.Arguments) > 1 {
			r.condition(n.Arguments[1])
		}
	default:
		for _, a := range n.Arguments {
			if i, ok := r.isColumn(a); ok {
				r.p.uses = append(r.p.uses, use{column: i, other: -1, want: wantNoDecimal, by: n.Name, at: r.at(a)})
			}
		}
	}
}

// condition refuses a column where true or false must stand: no column is either.
func (r *rewriter) condition(n ast.Node) {
	switch p := n.(type) {
	case *ast.PredicateNode:
		r.condition(p.Node)
	case *ast.VariableDeclaratorNode:
		r.condition(p.Expr)
	case *ast.SequenceNode:
		r.condition(p.Nodes[len(p.Nodes)-1])
	case *ast.ConditionalNode:
		r.condition(p.Exp1)
		r.condition(p.Exp2)
	}
	if i, ok := r.isColumn(n); ok {
		c := r.p.columns[i].String()
		r.fault(n, c+" is not true or false: a BOOL column is a number", "write "+c+" != 0")
	}
}

// alike notes that two operands must be of one kind.
func (r *rewriter) alike(a, b ast.Node, by string) {
	if _, ok := r.isColumn(a); !ok {
		a, b = b, a
	}
	i, ok := r.isColumn(a)
	if !ok {
		return
	}
	u := use{column: i, other: -1, by: by, at: r.at(a)}
	switch b := b.(type) {
	case *ast.IntegerNode, *ast.ConstantNode, *ast.UnaryNode:
		u.want = wantNumber
	case *ast.StringNode:
		u.want = wantText
	case *ast.BoolNode:
		c := r.p.columns[i].String()
		r.fault(a, c+" is not true or false: a BOOL column is a number", "write "+c+" "+by+" "+
			map[bool]string{true: "1", false: "0"}[b.Value])
		return
	default:
		j, ok := r.isColumn(b)
		if !ok {
			return
		}
		u.other = j
	}
	r.p.uses = append(r.p.uses, u)
}

// guarded notes that the predicate asks whether a column is nil.
func (r *rewriter) guarded(column, other ast.Node) {
	if _, isNil := other.(*ast.NilNode); isNil {
		if i, ok := r.isColumn(column); ok {
			r.p.guarded = append(r.p.guarded, i)
		}
	}
}

// ordered notes a column that fails the predicate when it is nil.
func (r *rewriter) ordered(n ast.Node, by string) {
	if i, ok := r.isColumn(n); ok {
		r.p.ordered = append(r.p.ordered, use{column: i, by: by, at: r.at(n)})
	}
}

func (r *rewriter) want(n ast.Node, w want, by string) {
	if i, ok := r.isColumn(n); ok {
		r.p.uses = append(r.p.uses, use{column: i, other: -1, want: w, by: by, at: r.at(n)})
	}
}
