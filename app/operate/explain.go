package operate

import (
	"fmt"
	"io"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/router/explain"
)

// Explain prints which keys each mapping makes from a row change, and why. row and old are JSON objects of columns;
// old is empty for an insert, row is null for a delete.
func Explain(w io.Writer, c *config.Config, table, row, old string) error {
	x, err := explain.Explain(c.Mappings, explain.Sample{Table: table, Row: []byte(row), Old: []byte(old)})
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(w, x)
	return err
}
