package explain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Sample is a row change in JSON, to be explained.
type Sample struct {
	// Table is schema.table.
	Table string
	// Definition is the table's definition. Nil where it is not known: the columns are then those of Row and Old,
	// and those that mappings name.
	Definition *event.Table
	// Row is the row after the change, an object of columns; null or empty: the row was deleted.
	Row []byte
	// Old is the row before the change; null or empty: the row was inserted. In an UPDATE it may hold only the
	// columns that changed: the others are those of Row.
	Old []byte
}

// fields are the columns of one image, by name in lower case.
type fields map[string]json.RawMessage

func parseFields(data []byte, what string) (fields, error) {
	if data = bytes.TrimSpace(data); len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w: write an object of columns, such as {\"id\": 17}", what, err)
	}
	out := fields{}
	for name, v := range raw {
		key := strings.ToLower(name)
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%s: column %q comes twice: names of columns compare without case", what, name)
		}
		out[key] = v
	}
	return out, nil
}

// table returns the table's definition: the given one, or one made of all that is named.
func (s *Sample) table(r *router.Router, row, old fields) (*event.Table, error) {
	schema, name, ok := router.ParseTable(s.Table)
	if !ok {
		return nil, fmt.Errorf("%s is no table: write schema.table", spec.Quote(s.Table))
	}
	if !r.Wants(schema, name) {
		var patterns []string
		for _, m := range r.Mappings() {
			patterns = append(patterns, m.Spec.Table.Value)
		}
		return nil, errors.New(spec.Sentence("no mapping matches "+s.Table,
			spec.Suggest(s.Table, patterns, "mappings are for "+spec.Names(patterns))))
	}
	if t := s.Definition; t != nil {
		return t, errors.Join(unknownFields(t, "row", row), unknownFields(t, "old row", old))
	}
	t := &event.Table{Schema: schema, Name: name}
	names := sortedNames(row, old)
	for _, m := range r.Mappings() {
		if m.Matches(t) {
			names = append(names, m.Columns()...)
		}
	}
	for _, name := range names {
		if t.Column(name) < 0 {
			t.Columns = append(t.Columns, event.Column{Name: name})
		}
	}
	return t, nil
}

// change turns the sample into a change of the table t, whose images hold all of its columns.
func (s *Sample) change(t *event.Table, row, old fields) (*event.Change, error) {
	c := &event.Change{Table: t, Tx: &event.Tx{}, Op: event.Update}
	if row == nil {
		c.Op = event.Delete
	}
	if old == nil {
		c.Op = event.Insert
	}
	if row != nil && old != nil {
		for name, v := range row {
			if _, ok := old[name]; !ok {
				old[name] = v
			}
		}
	}
	var errs []error
	image := func(what string, f fields) []event.Value {
		if f == nil {
			return nil
		}
		values := make([]event.Value, len(t.Columns))
		for i := range t.Columns {
			raw, ok := f[strings.ToLower(t.Columns[i].Name)]
			if !ok {
				continue
			}
			v, err := parseValue(raw, &t.Columns[i])
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: column %s: %w", what, t.Columns[i].Name, err))
			}
			values[i] = v
		}
		return values
	}
	c.Before, c.After = image("old row", old), image("row", row)
	return c, errors.Join(errs...)
}

// unknownFields returns an error for each column that the definition lacks.
func unknownFields(t *event.Table, what string, f fields) error {
	var names []string
	for i := range t.Columns {
		names = append(names, t.Columns[i].Name)
	}
	var errs []error
	for _, name := range sortedNames(f) {
		if t.Column(name) < 0 {
			errs = append(errs, errors.New(spec.Sentence(fmt.Sprintf("%s: table %s has no column %q", what, t, name),
				spec.Suggest(name, names, "it has "+spec.Names(names)))))
		}
	}
	return errors.Join(errs...)
}

func sortedNames(fs ...fields) []string {
	var names []string
	for _, f := range fs {
		for name := range f {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// parseValue reads a JSON scalar as the canal would hand over a column of this type.
func parseValue(raw json.RawMessage, c *event.Column) (event.Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return event.Value{}, err
	}
	switch {
	case v == nil:
		return event.Value{Kind: event.Null}, nil
	case c.Class == event.ClassJSON:
		return jsonValue(raw), nil
	}
	switch v := v.(type) {
	case bool:
		if v {
			return event.Value{Kind: event.Int, Num: 1, Raw: []byte("1")}, nil
		}
		return event.Value{Kind: event.Int, Raw: []byte("0")}, nil
	case json.Number:
		if text := v.String(); c.IsNumber() || c.Class == event.ClassUnknown {
			return numberValue(text, c)
		}
		return textValue(v.String(), c), nil
	case string:
		if c.IsNumber() {
			return numberValue(v, c)
		}
		return textValue(v, c), nil
	}
	return jsonValue(raw), nil
}

// jsonValue is a JSON column, in the form that MySQL prints but for the order of members.
func jsonValue(raw json.RawMessage) event.Value {
	return event.Value{Kind: event.JSON, Text: raw, Raw: raw}
}

func textValue(s string, c *event.Column) event.Value {
	kind := event.Text
	if c.Class == event.ClassBinary {
		kind = event.Bytes
	}
	return event.Value{Kind: kind, Text: []byte(s), Raw: []byte(s)}
}

func numberValue(s string, c *event.Column) (event.Value, error) {
	v := event.Value{Kind: event.Int, Raw: []byte(s)}
	if c.Class != event.ClassDecimal {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && (n >= 0 || !c.Unsigned) {
			v.Num = uint64(n)
			if c.Unsigned || c.IsYear() {
				v.Kind = event.Uint
			}
			return v, nil
		}
		if n, err := strconv.ParseUint(s, 10, 64); err == nil && n > math.MaxInt64 {
			v.Kind, v.Num = event.Uint, n
			return v, nil
		}
	}
	digits := regexp.MustCompile(`^-?([0-9]+\.?[0-9]*|\.[0-9]+)$`) // as MySQL prints a DECIMAL
	if c.Class == event.ClassInt || c.IsYear() || !digits.MatchString(s) || len(s) > 1024 {
		return event.Value{}, fmt.Errorf("%s is no value of %s: write its digits", spec.Quote(s), valueType(c))
	}
	v.Kind, v.Text = event.Decimal, []byte(s)
	return v, nil
}

func valueType(c *event.Column) string {
	if c.Class == event.ClassUnknown {
		return "a number column"
	}
	return c.TypeName()
}
