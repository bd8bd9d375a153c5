package operate

import (
	"fmt"
	"io"
)

// Grade says how bad a finding of `freshet check` is.
type Grade string

// The grades.
const (
	OK   Grade = "ok"
	Warn Grade = "warn"
	Fail Grade = "fail"
)

// Found is one finding.
type Found struct {
	Grade Grade
	// What was found, and Fix: the SQL or command that fixes it.
	What, Fix string
}

// Report is all that `freshet check` found.
type Report struct {
	Findings []Found
	// service says that a service runs Redis, or a node of it.
	service bool
}

func (r *Report) add(g Grade, what, fix string) {
	r.Findings = append(r.Findings, Found{g, what, fix})
}

// Failed reports whether freshet would not work as it is.
func (r *Report) Failed() bool {
	for _, f := range r.Findings {
		if f.Grade == Fail {
			return true
		}
	}
	return false
}

// Print writes the findings, one a line, with what fixes each below it.
func (r *Report) Print(w io.Writer) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(w, "%-4s  %s\n", f.Grade, f.What); err != nil {
			return err
		}
		if f.Fix == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "      %s\n", f.Fix); err != nil {
			return err
		}
	}
	return nil
}
