package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// maxWhen bounds a predicate's text, in bytes.
const maxWhen = 16 << 10

// predicate is a compiled `when`. It is bound to a table by the slots of its columns, and evaluated by one goroutine
// at a time.
type predicate struct {
	text    spec.Text
	program *vm.Program
	// columns are those that it reads, in the order in which the program numbers them.
	columns []WhenColumn
	// uses are what the types of the columns must be fit for.
	uses []use
	// ordered are the columns whose order is asked for, which nil has not; guarded those compared with nil.
	ordered []use
	guarded []int

	// The row under evaluation.
	slots         []int
	before, after []event.Value
}

// WhenColumn is row.name or old.name.
type WhenColumn struct {
	Old  bool
	Name string
	// at is where the name stands, as a byte offset.
	at int
}

func (c WhenColumn) String() string {
	if c.Old {
		return "old." + c.Name
	}
	return "row." + c.Name
}

// parsePredicate compiles a `when`. What is wrong is told with its place in the text.
func parsePredicate(t spec.Text) (p *predicate, faults []fault) {
	if len(t.Value) > maxWhen {
		return nil, []fault{{maxWhen, fmt.Sprintf("it is longer than %d bytes", maxWhen), "write a shorter one"}}
	}
	// The library reports what it finds as errors; a panic would be its fault, and must not be the operator's.
	defer func() {
		if r := recover(); r != nil {
			p, faults = nil, []fault{{0, fmt.Sprintf("it cannot be compiled: %v", r), "write it another way"}}
		}
	}()
	p = &predicate{text: t}
	rw := &rewriter{p: p}
	env := map[string]any{"row": map[string]any{}, "old": map[string]any{}}
	options := []expr.Option{expr.Env(env), expr.AsBool(), expr.DisableBuiltin("now"), expr.DisableBuiltin("repeat")}
	// Compiled once as it is, since only then does the library know what its own operators take; and once with
	// ours in their place.
	_, plain := expr.Compile(t.Value, options...)
	program, err := expr.Compile(t.Value, append(options, p.functions(), expr.Patch(rw))...)
	if program != nil && len(rw.faults) == 0 {
		rw.condition(program.Node())
	}
	faults = rw.finish()
	if plain == nil {
		plain = err
	}
	if plain != nil && len(faults) == 0 {
		faults = append(faults, compileFault(t.Value, plain))
	}
	p.program = program
	return p, faults
}

// compileFault turns the library's error into ours.
func compileFault(text string, err error) fault {
	var fe *file.Error
	if !errors.As(err, &fe) {
		f := fault{0, err.Error(), "write an expression that is true or false, such as row.status == 'live'"}
		if rest, ok := strings.CutPrefix(f.what, "expected bool, but got "); ok {
			f.what = "it is " + rest + ", not true or false"
		}
		return f
	}
	f := fault{byteOffset(text, fe.From), fe.Message, "see the mapping language for what a predicate may say"}
	if name, ok := strings.CutPrefix(fe.Message, "unknown name "); ok {
		f.what = "unknown name " + spec.Quote(name)
		switch near := spec.Nearest(name, []string{"row", "old"}); {
		case disabled(name):
			f.what, f.do = name+"() is not available: it would not depend on the row alone, or take too much memory", "remove it"
		case strings.HasPrefix(text[f.at:], name+"("):
			f.what = "unknown function " + spec.Quote(name)
			f.do = spec.Suggest(name, builtin.Names, "see the mapping language for the functions there are")
		case near != "":
			f.do = fmt.Sprintf("did you mean %q?", near)
		default:
			f.do = "write row." + name + " or old." + name
		}
	}
	return f
}

func disabled(name string) bool { return name == "now" || name == "repeat" }

// byteOffset returns the offset in bytes of the n-th character.
func byteOffset(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// column returns the number of a column, the same for each time that it is read.
func (p *predicate) column(c WhenColumn) int {
	i := slices.IndexFunc(p.columns, func(o WhenColumn) bool { return o.Old == c.Old && o.Name == c.Name })
	if i >= 0 {
		return i
	}
	p.columns = append(p.columns, c)
	return len(p.columns) - 1
}

// eval evaluates the predicate for a change, in whose images the columns have these slots. What it returns next to an
// error is true: a predicate that cannot be evaluated holds up nothing. The error holds no value of the row.
func (p *predicate) eval(machine *vm.VM, c *event.Change, slots []int) (bool, error) {
	p.before, p.after = nil, nil
	if c.Op != event.Insert {
		p.before = c.Before
	}
	if c.Op != event.Delete {
		p.after = c.After
	}
	return p.run(machine, slots)
}

// alone is eval for a row as it stands, whether it was or is: it is `row`, and there is no `old`.
func (p *predicate) alone(machine *vm.VM, image []event.Value, slots []int) (bool, error) {
	p.before, p.after = nil, image
	return p.run(machine, slots)
}

func (p *predicate) run(machine *vm.VM, slots []int) (bool, error) {
	p.slots = slots
	out, err := machine.Run(p.program, nil)
	p.before, p.after = nil, nil
	if err != nil {
		return true, p.runtimeError(err)
	}
	yes, ok := out.(bool)
	if !ok {
		return true, errors.New("its result is not true or false")
	}
	return yes, nil
}

// runtimeError says why and where without the words of the library, which can hold a row's values.
func (p *predicate) runtimeError(err error) error {
	why := errors.New("an operand or argument has a type that the operator or function does not take")
	at := 0
	var fe *file.Error
	if errors.As(err, &fe) {
		at = byteOffset(p.text.Value, fe.From)
		if fe.Prev != nil && own(fe.Prev) {
			why = fe.Prev
		}
	}
	return fmt.Errorf("%s: %w", p.text.At(at), why)
}

// value returns what a column holds: nil, an int64, a uint64, a decimal or a string.
func (p *predicate) value(i int) (any, error) {
	image := p.after
	if p.columns[i].Old {
		image = p.before
	}
	if image == nil {
		return nil, nil
	}
	v := &image[p.slots[i]]
	switch v.Kind {
	case event.Null:
		return nil, nil
	case event.Int:
		return int64(v.Num), nil
	case event.Uint:
		return v.Num, nil
	case event.Decimal:
		d, ok := parseDecimal(string(v.Text))
		if !ok {
			return nil, failure{errNoNumber}
		}
		return d, nil
	case event.Text, event.Bytes:
		return string(v.Text), nil
	case event.Opaque, event.JSON:
		return nil, failure{errNoText}
	}
	return nil, failure{errAbsent}
}

// failure marks an error as one of ours, whose words hold no value of a row.
type failure struct{ error }

func own(err error) bool {
	var f failure
	return errors.As(err, &f)
}
