package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/freshet/freshet/event"
)

// Doubt is a doubt as the API shows it: some keys may be stale although all work is finished.
type Doubt struct {
	ID      string    `json:"id"`
	Cause   string    `json:"cause"`
	Source  string    `json:"source,omitempty"`
	Group   string    `json:"group,omitempty"`
	Tables  []string  `json:"tables,omitempty"`
	Schemas []string  `json:"schemas,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"`
	// Templates are those whose keys are meant; empty: all of the tables. Pattern is a glob that the keys also match.
	Templates []string `json:"templates,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`
	// Partition, if it is there, is the one of the topic in Kafka whose keys are meant.
	Partition *int `json:"partition,omitempty"`
	// Asked says that an operator wants it answered, Answer how it is being answered, and Stuck that it cannot be: then
	// Answer says why.
	Asked  bool   `json:"asked,omitempty"`
	Answer string `json:"answer,omitempty"`
	Stuck  bool   `json:"stuck,omitempty"`
	// Progress is how far the answer is; nil: that is not known.
	Progress *event.Progress `json:"progress,omitempty"`
}

// EndedDoubt is how a doubt ended that is there no more.
type EndedDoubt struct {
	ID string `json:"id"`
	// Last is when it came last, and Ended when it ended. How is one of the constants below. Answer says how its answer
	// ended, or how far that was.
	Last   time.Time `json:"last"`
	Ended  time.Time `json:"ended"`
	How    string    `json:"how"`
	Answer string    `json:"answer,omitempty"`
}

// How a doubt ends.
const (
	DoubtAnswered  = "answered"
	DoubtDismissed = "dismissed"
)

// Doubts are what is in doubt, wherever it is kept. [Client] is one as well.
type Doubts interface {
	// ListDoubts returns all, oldest first.
	ListDoubts(ctx context.Context) ([]Doubt, error)
	// DismissDoubt removes one for good. It fails with [ErrNoDoubt], and with [ErrCameAgain] if its Last is after seen,
	// the Last that was looked at; a zero seen means whatever there is.
	DismissDoubt(ctx context.Context, id string, seen time.Time) error
	// AnswerDoubt has one answered that is not answered by itself. It fails with [ErrNoDoubt].
	AnswerDoubt(ctx context.Context, id string) error
	// EndedDoubt returns how one ended last. It fails with [ErrNoDoubt] if that is not known.
	EndedDoubt(ctx context.Context, id string) (EndedDoubt, error)
}

// The errors of [Doubts].
var (
	ErrNoDoubt   = errors.New("there is no such doubt")
	ErrCameAgain = errors.New("it has come again since you looked at it")
)

// Seen is the body of a dismissal: the Last of the doubt as it was looked at.
type Seen struct {
	Last time.Time `json:"last"`
}

func (s *Server) listDoubts(w http.ResponseWriter, r *http.Request) {
	if all, ok := s.allDoubts(w, r); ok {
		reply(w, all)
	}
}

func (s *Server) allDoubts(w http.ResponseWriter, r *http.Request) ([]Doubt, bool) {
	all, err := s.deps.Doubts.ListDoubts(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return nil, false
	}
	if all == nil {
		all = []Doubt{}
	}
	return all, true
}

func (s *Server) showDoubt(w http.ResponseWriter, r *http.Request) {
	all, ok := s.allDoubts(w, r)
	if !ok {
		return
	}
	for i := range all {
		if all[i].ID == r.PathValue("id") {
			reply(w, all[i])
			return
		}
	}
	fail(w, http.StatusNotFound, fmt.Sprintf("there is no doubt %q", r.PathValue("id")))
}

func (s *Server) endedDoubt(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	e, err := s.deps.Doubts.EndedDoubt(r.Context(), id)
	switch {
	case errors.Is(err, ErrNoDoubt):
		fail(w, http.StatusNotFound, fmt.Sprintf("it is not known here how doubt %q ended", id))
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	default:
		reply(w, e)
	}
}

func (s *Server) dismissDoubt(w http.ResponseWriter, r *http.Request) {
	var seen Seen
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&seen); err != nil && !errors.Is(err, io.EOF) { // no body: whatever there is
		fail(w, http.StatusBadRequest,
			`the body must be empty, or JSON with the doubt's last, such as {"last": "2026-01-31T08:00:00Z"}: `+err.Error())
		return
	}
	id := r.PathValue("id")
	err := s.deps.Doubts.DismissDoubt(r.Context(), id, seen.Last)
	switch {
	case errors.Is(err, ErrNoDoubt):
		fail(w, http.StatusNotFound, fmt.Sprintf("there is no doubt %q", id))
	case errors.Is(err, ErrCameAgain):
		fail(w, http.StatusConflict, fmt.Sprintf("doubt %s has come again since you looked at it: look again", id))
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	default:
		s.deps.Log.Info("doubt dismissed", "id", id, "remote", r.RemoteAddr)
		reply(w, Counted{Count: 1})
	}
}

func (s *Server) answerDoubt(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	err := s.deps.Doubts.AnswerDoubt(r.Context(), id)
	if errors.Is(err, ErrNoDoubt) {
		fail(w, http.StatusNotFound, fmt.Sprintf("there is no doubt %q", id))
		return
	}
	if refuse(w, err) {
		return
	}
	s.deps.Log.Info("doubt to be answered", "id", id, "remote", r.RemoteAddr)
	reply(w, Counted{Count: 1})
}

// ListDoubts implements [Doubts].
func (c *Client) ListDoubts(ctx context.Context) ([]Doubt, error) {
	var out []Doubt
	return out, c.call(ctx, http.MethodGet, "/doubts", nil, &out)
}

// DismissDoubt implements [Doubts].
func (c *Client) DismissDoubt(ctx context.Context, id string, seen time.Time) error {
	var body any
	if !seen.IsZero() {
		body = Seen{seen}
	}
	return c.call(ctx, http.MethodPost, "/doubts/"+url.PathEscape(id)+"/dismiss", body, &Counted{})
}

// AnswerDoubt implements [Doubts].
func (c *Client) AnswerDoubt(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/doubts/"+url.PathEscape(id)+"/answer", nil, &Counted{})
}

// EndedDoubt implements [Doubts].
func (c *Client) EndedDoubt(ctx context.Context, id string) (e EndedDoubt, err error) {
	err = c.call(ctx, http.MethodGet, "/doubts/"+url.PathEscape(id)+"/ended", nil, &e)
	var r *refusal
	if errors.As(err, &r) && r.code == http.StatusNotFound { // an earlier version does not know either
		err = fmt.Errorf("%w: %w", ErrNoDoubt, err)
	}
	return e, err
}
