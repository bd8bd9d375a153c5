package rebuild

import (
	"context"
	"errors"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
)

// Checked is what the servers say of a query without running it.
type Checked struct {
	Query *Query
	// Columns are those that its rows would have.
	Columns []event.Column
	// Err is an [*Error] that says what is wrong with the query, or that it could not be tried; nil if it is as it
	// should be.
	Err error
	// Elsewhere is why it runs on the source for now, and not on the replica that it names; nil: it runs where it should.
	Elsewhere error
}

// Check has the servers prepare every query, and returns what they say of each, in the order of Options.Queries: tables
// and columns that do not exist, rights that are missing, columns that the value cannot hold. Its error is that of the
// connection to the source: nothing is known then.
func (r *Runner) Check(ctx context.Context) ([]Checked, error) {
	leave, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	all := make([]Checked, len(r.queries))
	err = r.source.with(ctx, DefaultTimeout, func(c *conn) error {
		for i, q := range r.queries {
			if all[i], err = c.checked(q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	on := map[*pool][]int{}
	for i, q := range r.queries {
		switch runs := r.byID[q.ID].replica; {
		case runs != nil:
			on[runs] = append(on[runs], i)
		case q.Server != "":
			all[i].Elsewhere = errDisagree
		}
	}
	for p, queries := range on {
		if err := p.check(ctx, all, queries); err != nil {
			for _, i := range queries {
				all[i].Elsewhere = err
			}
		}
	}
	return all, nil
}

// check notes why some queries would not run on a replica now; the error is why none would.
func (p *pool) check(ctx context.Context, all []Checked, queries []int) error {
	var why *unfit
	err := p.with(ctx, DefaultTimeout, func(c *conn) error {
		why = nil
		_, err := c.await(ctx, p.wait, &moment{began: time.Now()}, func() (*position, error) {
			return p.runner.position(ctx, p.runner.queries[queries[0]], nil)
		})
		if errors.As(err, &why) {
			return nil
		}
		for _, i := range queries {
			var on Checked
			if err == nil {
				on, err = c.checked(p.runner.queries[i])
			}
			all[i].Elsewhere = on.Err
		}
		return err
	})
	if why != nil {
		return why
	}
	return err
}

// checked is what a session's server says of a query; the error is that of the session.
func (c *conn) checked(q *prepared) (Checked, error) {
	columns, err := c.check(q)
	if isLost(err) {
		return Checked{}, err
	}
	checked := Checked{Query: &q.Query}
	for i := range columns {
		checked.Columns = append(checked.Columns, columns[i].Column)
	}
	if err != nil {
		checked.Err = q.explain(err)
	}
	return checked, nil
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
