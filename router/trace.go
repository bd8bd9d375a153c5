package router

import "fmt"

// Tracer records what Route makes from a row change, while it does, and why it makes no more: for explanations.
type Tracer interface {
	// Rule says whether a mapping is for the change. passed is what it asks for that the change has not, as in the
	// metrics (events, columns, when); empty when it is for it. An error says that `when` failed, which counts as true.
	Rule(m *Mapping, passed string, err error)
	// Added says where the batch's last invalidation comes from. doubt is why it forgets what would have been written,
	// as in the metrics; empty when nothing was in doubt.
	Added(s Step, doubt string)
	// Merged says that an invalidation is the same as one that the batch has at index i.
	Merged(s Step, i int)
	// Missed says in words why nothing was made.
	Missed(s Step, why string)
}

// Step is one action of a mapping over one image of the row.
type Step struct {
	Mapping *Mapping
	Action  *Action
	// Old says that the image is the row before an UPDATE, and that the row after it has another key.
	Old bool
}

// why says in words why a text was not made.
func (k *textPlan) why(out outcome, at int) string {
	switch out {
	case tooLong:
		return fmt.Sprintf("the %s is longer than %d KiB", k.role, k.most>>10)
	case unnamed:
		return fmt.Sprintf("the %s names what the table lacks", k.role)
	}
	column := k.parts[at].column
	switch out {
	case isNull:
		return column + " is NULL"
	case notNumber:
		return column + " is no integer, which mod needs"
	}
	return "the row does not say " + column
}
