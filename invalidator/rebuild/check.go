package rebuild

import (
	"context"
	"errors"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
)

// Checked is what the server says of a query without running it.
type Checked struct {
	Query *Query
	// Columns are those that its rows would have.
	Columns []event.Column
	// Err is an [*Error] that says what is wrong with the query, or that it could not be tried; nil if it is as it
	// should be.
	Err error
}

// Check has the server prepare every query, and returns what it says of each, in the order of Options.Queries: tables
// and columns that do not exist, rights that are missing, columns that the value cannot hold. Its error is that of the
// connection: nothing is known then.
func (r *Runner) Check(ctx context.Context) ([]Checked, error) {
	leave, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var all []Checked
	err = r.with(ctx, DefaultTimeout, func(c *conn) error {
		all = all[:0]
		for _, q := range r.queries {
			columns, err := c.check(q)
			if isLost(err) {
				return err
			}
			checked := Checked{Query: &q.Query}
			for i := range columns {
				checked.Columns = append(checked.Columns, columns[i].Column)
			}
			if err != nil {
				checked.Err = q.explain(err)
			}
			all = append(all, checked)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (c *conn) check(q *prepared) ([]column, error) {
	s, err := c.statement(q, 1, "")
	if err != nil {
		return nil, err
	}
	columns := s.columns
	if s.ParamNum() != len(q.Params) {
		return columns, faulty("the server finds %d parameters in it, and freshet %d: write it without the part that they "+
			"read differently", s.ParamNum(), len(q.Params))
	}
	_, err = q.document(columns)
	return columns, err
}

// columns are those of a prepared statement's rows.
func (c *conn) columns(s *client.Stmt) ([]column, error) {
	var all []column
	for _, raw := range s.RawColumnFields {
		f, err := mysql.FieldData(raw).Parse()
		if err != nil {
			return nil, errors.Join(mysql.ErrMalformPacket, err)
		}
		all = append(all, columnOf(f, c.maria))
	}
	return all, nil
}
