package canal

import (
	"fmt"
	"strconv"

	"github.com/freshet/freshet/event"
)

// stopper is a sink that counts rows whose first column counts from 1, and stops for as long as gone takes before
// some of them.
type stopper struct {
	*recorder
	stops []int
	gone  func()
	rows  int
	bad   string
}

func (s *stopper) Row(c *event.Change) error {
	if len(s.stops) > 0 && s.rows == s.stops[0] {
		s.stops = s.stops[1:]
		s.gone()
	}
	s.rows++
	if id := string(c.After[0].AppendText(nil)); id != strconv.Itoa(s.rows) && s.bad == "" {
		s.bad = fmt.Sprintf("row %d is %s", s.rows, id)
	}
	return nil
}
