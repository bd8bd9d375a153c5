package app

import (
	"slices"
	"time"

	"github.com/freshet/freshet/event"
)

// WarmUp is a warm-up that is not ended. Its condition is not shown: it may hold values of rows.
type WarmUp struct {
	ID    string    `json:"id"`
	Table string    `json:"table"`
	Some  bool      `json:"some"` // there is a condition
	Asked time.Time `json:"asked"`
	// Rows and Keys are how many have been read, and dealt with.
	Rows int64 `json:"rows"`
	Keys int64 `json:"keys"`
	// Answer says in a sentence how it is going.
	Answer string `json:"answer"`
	// Progress is how far the rows are; nil: that is not known.
	Progress *event.Progress `json:"progress,omitempty"`
}

// EndedWarmUp is a warm-up that has ended.
type EndedWarmUp struct {
	WarmUp
	Ended time.Time `json:"ended"`
	// Done says that all rows were read. Else it was Cancelled, or could not go on: Answer says why.
	Done      bool `json:"done"`
	Cancelled bool `json:"cancelled,omitempty"`
}

// show returns what is shown of a task. The caller holds mu.
func (w *warming) show(t *warmUp) WarmUp {
	s := WarmUp{ID: t.ID, Table: t.Table, Some: t.Where != "", Asked: t.Asked, Answer: "waiting for the one before it"}
	switch {
	case w.running != nil && w.of == *t:
		s.Rows, s.Keys, s.Answer = w.running.rows.Load(), w.running.keys.Load(), w.running.going()
		s.Progress = w.running.progress.Load()
	case w.state.is(t):
		s.Rows, s.Keys, s.Answer, s.Progress = w.state.Rows, w.state.Keys, w.state.Answer, w.state.Progress
	case w.tasks[0] == *t:
		s.Answer = "about to begin"
	}
	if t.Cancelled {
		s.Answer = "about to end, since it was cancelled"
	}
	return s
}

// going says how a walk is going.
func (k *walked) going() string {
	if trouble := k.trouble.Load(); trouble != nil {
		return "waiting for the source: " + *trouble
	}
	return "reading rows"
}

// status fills in what is known of warm-ups.
func (w *warming) status(s *Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.tasks {
		s.WarmUps = append(s.WarmUps, w.show(&w.tasks[i]))
	}
	s.EndedWarmUps, s.WarmUpsUnknown = slices.Clone(w.state.Ended), !w.loaded
}
