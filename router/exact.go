package router

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/vm/runtime"
)

// The operators of expr convert numbers to int or float64 before they compare them, which is wrong for BIGINT
// UNSIGNED beyond 2^63 and for every DECIMAL. Predicates therefore compute with the functions of this file: whole
// numbers are compared as such, everything else as fractions.

// decimal is a number that is no int64 or uint64: a DECIMAL column, a literal with a point, or a result.
type decimal struct{ rat *big.Rat }

// parseDecimal reads digits with an optional sign and point, as MySQL prints a DECIMAL. It refuses everything else
// that big.Rat would read: an exponent would ask for any amount of memory, a fraction is none of MySQL's.
func parseDecimal(text string) (decimal, bool) {
	if !plainDecimal(text) {
		return decimal{}, false
	}
	r, ok := new(big.Rat).SetString(text)
	return decimal{r}, ok
}

func plainDecimal(text string) bool {
	point, number := false, false
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			number = true
		case c == '.' && !point:
			point = true
		case (c == '-' || c == '+') && i == 0:
		default:
			return false
		}
	}
	return number && len(text) <= 1024
}

// String returns the number's digits, or a fraction where they have no end.
func (d decimal) String() string {
	if n, exact := d.rat.FloatPrec(); exact {
		return d.rat.FloatString(n)
	}
	return d.rat.RatString()
}

// maxBits bounds the numbers that a predicate may arrive at: a product in a loop grows without end.
const maxBits = 4096

var (
	errNoNumber = errors.New("it computes with what is no number")
	errZero     = errors.New("it divides by zero")
	errTooLarge = errors.New("a number became too large")
	errAbsent   = errors.New("the row image lacks a column that it reads")
	errNoText   = errors.New("it reads a column whose text is not known")
)

// whole returns v as a whole number: n, or u when it is beyond int64.
func whole(v any) (n int64, u uint64, ok bool) {
	switch x := v.(type) {
	case int64:
		return x, 0, true
	case int:
		return int64(x), 0, true
	case uint64:
		if x <= math.MaxInt64 {
			return int64(x), 0, true
		}
		return 0, x, true
	case uint8:
		return int64(x), 0, true
	}
	return 0, 0, false
}

// rational returns any number as a fraction.
func rational(v any) (*big.Rat, bool) {
	if n, u, ok := whole(v); ok {
		if u > 0 {
			return new(big.Rat).SetUint64(u), true
		}
		return new(big.Rat).SetInt64(n), true
	}
	switch x := v.(type) {
	case decimal:
		return x.rat, true
	case float64:
		r := new(big.Rat).SetFloat64(x)
		return r, r != nil
	}
	return nil, false
}

// compareNumbers returns -1, 0 or 1; ok is false unless both are numbers.
func compareNumbers(a, b any) (order int, ok bool) {
	if an, au, isWhole := whole(a); isWhole {
		if bn, bu, isWhole := whole(b); isWhole {
			return compareWhole(an, au, bn, bu), true
		}
	}
	x, xok := rational(a)
	y, yok := rational(b)
	if !xok || !yok {
		return 0, false
	}
	return x.Cmp(y), true
}

func compareWhole(an int64, au uint64, bn int64, bu uint64) int {
	switch {
	case au != bu: // A number beyond int64 is above all that are not.
		if au < bu {
			return -1
		}
		return 1
	case an < bn:
		return -1
	case an > bn:
		return 1
	}
	return 0
}

// equal is == and !=. What can never be equal, such as a text and a number, is an error: the mapping's author
// expected otherwise.
func equal(a, b any) (bool, error) {
	if a == nil || b == nil {
		return a == nil && b == nil, nil
	}
	if order, ok := compareNumbers(a, b); ok {
		return order == 0, nil
	}
	x, xok := a.(string)
	y, yok := b.(string)
	if xok && yok {
		return x == y, nil
	}
	if scalar(a) != scalar(b) {
		return false, fmt.Errorf("it compares %s with %s", scalar(a), scalar(b))
	}
	return runtime.Equal(a, b), nil
}

// scalar names the kind of a value for an error message.
func scalar(v any) string {
	if _, ok := rational(v); ok {
		return "a number"
	}
	switch v.(type) {
	case nil:
		return "nil"
	case string:
		return "text"
	case bool:
		return "true or false"
	}
	return "another value"
}

// order is what <, <=, > and >= ask for.
func order(a, b any) (int, error) {
	if o, ok := compareNumbers(a, b); ok {
		return o, nil
	}
	x, xok := a.(string)
	y, yok := b.(string)
	switch {
	case xok && yok && x < y:
		return -1, nil
	case xok && yok && x > y:
		return 1, nil
	case xok && yok:
		return 0, nil
	case scalar(a) != scalar(b) || scalar(a) != "another value":
		return 0, fmt.Errorf("it compares %s with %s", scalar(a), scalar(b))
	case runtime.Less(a, b): // times and durations
		return -1, nil
	case runtime.Less(b, a):
		return 1, nil
	}
	return 0, nil
}

// member is `in`.
func member(needle, in any) (bool, error) {
	list, ok := in.([]any)
	if !ok {
		return runtime.In(needle, in), nil
	}
	for _, v := range list {
		same, err := equal(needle, v)
		if same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// between is `in a..b`: whether a whole number lies in a range, which is never written out.
func between(v, from, to any) (bool, error) {
	if v == nil {
		return false, nil
	}
	low, ok := compareNumbers(v, from)
	high, ok2 := compareNumbers(v, to)
	if !ok || !ok2 {
		return false, errNoNumber
	}
	r, _ := rational(v)
	return low >= 0 && high <= 0 && r.IsInt(), nil
}

// add, which also joins texts and moves times.
func add(a, b any) (any, error) {
	x, xok := a.(string)
	y, yok := b.(string)
	if xok && yok {
		return x + y, nil
	}
	return arithmetic('+', a, b)
}

// arithmetic computes exactly. What are no numbers can still be times and durations.
func arithmetic(op byte, a, b any) (any, error) {
	if n, ok := quick(op, a, b); ok {
		return n, nil
	}
	x, xok := rational(a)
	y, yok := rational(b)
	if !xok || !yok {
		return otherwise(op, a, b)
	}
	var z big.Rat
	switch op {
	case '+':
		z.Add(x, y)
	case '-':
		z.Sub(x, y)
	case '*':
		z.Mul(x, y)
	default:
		if y.Sign() == 0 {
			return nil, errZero
		}
		if op == '/' {
			z.Quo(x, y)
			break
		}
		if !x.IsInt() || !y.IsInt() {
			return nil, errNoNumber
		}
		z.SetInt(new(big.Int).Rem(x.Num(), y.Num()))
	}
	return tidy(&z)
}

// quick computes what fits into int64 without doubt.
func quick(op byte, a, b any) (int64, bool) {
	const half = 1 << 31
	x, xu, xok := whole(a)
	y, yu, yok := whole(b)
	if !xok || !yok || xu > 0 || yu > 0 || x >= half || x <= -half || y >= half || y <= -half {
		return 0, false
	}
	switch {
	case op == '+':
		return x + y, true
	case op == '-':
		return x - y, true
	case op == '*':
		return x * y, true
	case op == '%' && y != 0:
		return x % y, true
	}
	return 0, false
}

// tidy returns whole numbers as int64 or uint64.
func tidy(r *big.Rat) (any, error) {
	switch {
	case r.Num().BitLen() > maxBits || r.Denom().BitLen() > maxBits:
		return nil, errTooLarge
	case r.IsInt() && r.Num().IsInt64():
		return r.Num().Int64(), nil
	case r.IsInt() && r.Num().IsUint64():
		return r.Num().Uint64(), nil
	}
	return decimal{r}, nil
}

func otherwise(op byte, a, b any) (any, error) {
	if scalar(a) != "another value" && scalar(b) != "another value" {
		return nil, errNoNumber
	}
	switch op {
	case '+':
		return runtime.Add(a, b), nil
	case '-':
		return runtime.Subtract(a, b), nil
	}
	return nil, errNoNumber
}

// toInt is int(): the whole part of a number, or the number that a text holds.
func toInt(v any) (any, error) {
	if d, ok := v.(decimal); ok {
		return tidy(new(big.Rat).SetInt(new(big.Int).Quo(d.rat.Num(), d.rat.Denom())))
	}
	if _, _, ok := whole(v); ok {
		return v, nil
	}
	if s, ok := v.(string); ok {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			return n, nil
		}
		// The text itself is a row's, and must not come into an error.
		return nil, errors.New("int() of a text that is no whole number")
	}
	return builtin.Int(v), nil
}

// toFloat is float().
func toFloat(v any) (any, error) {
	if s, ok := v.(string); ok {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, errors.New("float() of a text that is no number")
		}
		return f, nil
	}
	r, ok := rational(v)
	if !ok {
		return builtin.Float(v), nil
	}
	f, _ := r.Float64()
	return f, nil
}

// absolute is abs().
func absolute(v any) (any, error) {
	if r, ok := rational(v); ok && r.Sign() < 0 {
		return arithmetic('-', 0, v)
	} else if !ok {
		return nil, errNoNumber
	}
	return v, nil
}

// extreme is max() (sign 1) and min() (sign -1) of two or more values.
func extreme(sign int, vs []any) (any, error) {
	best := vs[0]
	for _, v := range vs[1:] {
		o, err := order(v, best)
		if err != nil {
			return nil, err
		}
		if o == sign {
			best = v
		}
	}
	return best, nil
}
