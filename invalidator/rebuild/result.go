package rebuild

import (
	"errors"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/document"
)

// sink makes a value of the rows of a result as they come.
type sink struct {
	query *Query
	maria bool
	limit int

	columns []column
	writer  *document.Writer
	values  []event.Value
	text    []byte // made for the current row
	out     []byte
	rows    int
	// mayBeConverted says that a value may be another than that of the query alone.
	mayBeConverted bool
	// err is why no more rows were taken: the library wraps what is returned to it.
	err error
}

// begin takes the result's columns.
func (s *sink) begin(r *mysql.Result) error {
	s.columns = columnsOf(r.Fields, s.maria)
	s.values = make([]event.Value, len(s.columns))
	s.writer, s.err = s.query.document(s.columns)
	if s.query.Many && s.query.As == event.FormJSON {
		s.out = append(s.out, '[')
	}
	return s.err
}

// expireAt is the member that stands for event.Effect.ExpireAt in a value.
const expireAt = "expire_at"

// document returns what writes rows of the columns; its error says what is wrong with them.
func (q *Query) document(columns []column) (*document.Writer, error) {
	switch {
	case len(columns) == 0:
		return nil, faulty("it returns no rows: write a SELECT")
	case q.As == event.FormString && len(columns) != 1:
		return nil, faulty("it has %d columns, and as: string needs one", len(columns))
	case q.As == event.FormHash && q.Many && len(columns) != 2:
		return nil, faulty("it has %d columns; many rows as a hash need two, the fields' names and their values",
			len(columns))
	}
	fields := make([]document.Field, len(columns))
	seen := map[string]bool{}
	for i := range columns {
		c := &columns[i].Column
		switch {
		case seen[c.Name]:
			return nil, faulty("it has two columns called %s: give one another name with AS", called(c.Name))
		case q.ExpireAt > 0 && c.Name == expireAt:
			return nil, faulty("its column %s has the name that expire_at uses: give it another one with AS", called(c.Name))
		}
		seen[c.Name] = true
		fields[i] = document.Field{Name: c.Name, Column: c}
	}
	w, err := document.New(fields, document.Options{DecimalNumbers: q.DecimalNumbers})
	if err != nil {
		return nil, faulty("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return w, nil
}

// row takes a row.
func (s *sink) row(row []mysql.FieldValue) error {
	s.err = s.add(row)
	return s.err
}

func (s *sink) add(row []mysql.FieldValue) error {
	s.rows++
	if s.rows > 1 && !s.query.Many {
		return faulty("it returned more than one row: make it return one (LIMIT 1), or write rows: many")
	}
	s.text = s.text[:0]
	for i := range s.columns {
		s.text = s.columns[i].value(&s.values[i], &row[i], s.text)
	}
	var err error
	switch {
	case s.query.As == event.FormJSON:
		if s.rows > 1 {
			s.out = append(s.out, ',')
		}
		s.out, err = s.writer.JSON(s.out, s.values)
	case s.query.As == event.FormHash && s.query.Many:
		err = s.addField()
	default:
		s.out, err = s.writer.Hash(s.out, s.values)
	}
	switch {
	case errors.Is(err, document.ErrAbsent):
		return faulty("a value has no text")
	case err != nil:
		return err
	case len(s.out) > s.limit:
		return tooLarge(s.limit)
	}
	return nil
}

// addField adds a row that is a field of a hash: its name and its value.
func (s *sink) addField() error {
	begin := len(s.out)
	out, err := s.writer.Hash(s.out, s.values)
	if err != nil {
		return err
	}
	parts, err := event.Fields(out[begin:]).All()
	switch {
	case err != nil:
		return err
	case s.values[0].Kind == event.Null:
		return faulty("its column %s, the name of a field, is NULL in a row", called(s.columns[0].Name))
	case len(parts) < 4: // the value is NULL: there is no such field
		s.out = out[:begin]
		return nil
	}
	// Both were written after begin, with the columns' names: kept bytes are copied before they are overwritten.
	name, value := string(parts[1]), string(parts[3])
	s.out = event.AppendField(event.AppendField(out[:begin], name), value)
	return nil
}

// value returns the value when all rows have been taken.
func (s *sink) value() (value event.Fields, missing bool) {
	switch {
	case s.rows == 0 && !s.query.Many:
		return nil, true
	case s.query.As == event.FormJSON:
		if s.query.Many {
			s.out = append(s.out, ']')
		}
		return event.AppendField(nil, s.out), false
	case len(s.out) == 0:
		return nil, true
	case s.query.As == event.FormHash:
		return s.out, false
	}
	_, rest, _ := event.Fields(s.out).Next() // the column's name
	return rest, false
}
