package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Letter is a dead letter as the API shows it. It carries no value, only what is known of the key.
type Letter struct {
	ID       uint64    `json:"id"`
	Key      string    `json:"key"`
	Action   string    `json:"action"`
	Source   string    `json:"source"`
	Table    string    `json:"table"`
	Version  string    `json:"version"`
	Error    string    `json:"error"`
	Attempts int       `json:"attempts"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// Selection says which dead letters are meant.
type Selection struct {
	// IDs are the letters' own numbers; with All they are left empty.
	IDs []uint64 `json:"ids,omitempty"`
	All bool     `json:"all,omitempty"`
	// Table narrows All to one table (schema.table).
	Table string `json:"table,omitempty"`
}

// Validate refuses a selection that says nothing, or two things at once.
func (s Selection) Validate() error {
	switch {
	case s.All == (len(s.IDs) > 0):
		return fmt.Errorf("say which dead letters: their ids, or all")
	case s.Table != "" && !s.All:
		return fmt.Errorf("a table limits `all`; it has no effect with ids")
	}
	return nil
}

// Letters are the dead letters, wherever they are kept. [Client] is one as well.
type Letters interface {
	// List returns up to limit letters with ids above after, in order of id, of one table or (empty) of all.
	List(ctx context.Context, table string, after uint64, limit int) ([]Letter, error)
	// Replay makes letters due again, with their attempts at zero, and returns how many. Safe to repeat.
	Replay(ctx context.Context, s Selection) (int, error)
	// Purge removes letters for good and returns how many.
	Purge(ctx context.Context, s Selection) (int, error)
}

// maxPage is the most letters that one answer lists.
const maxPage = 1000

// Counted is the answer to a change: how many letters it touched.
type Counted struct {
	Count int `json:"count"`
}

func (s *Server) listLetters(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	after, err1 := number(q.Get("after"), 0)
	limit, err2 := number(q.Get("limit"), maxPage)
	if err1 != nil || err2 != nil {
		fail(w, http.StatusBadRequest, "after and limit are whole numbers")
		return
	}
	letters, err := s.deps.Letters.List(r.Context(), q.Get("table"), after, int(min(limit, maxPage)))
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	if letters == nil {
		letters = []Letter{}
	}
	reply(w, letters)
}

func number(s string, absent uint64) (uint64, error) {
	if s == "" {
		return absent, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

func (s *Server) showLetter(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil || id == 0 {
		fail(w, http.StatusBadRequest, "an id is a whole number above 0")
		return
	}
	letters, err := s.deps.Letters.List(r.Context(), "", id-1, 1)
	switch {
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	case len(letters) == 0 || letters[0].ID != id:
		fail(w, http.StatusNotFound, fmt.Sprintf("there is no dead letter %d", id))
	default:
		reply(w, letters[0])
	}
}

func (s *Server) replayLetters(w http.ResponseWriter, r *http.Request) {
	s.changeLetters(w, r, s.deps.Letters.Replay)
}

func (s *Server) purgeLetters(w http.ResponseWriter, r *http.Request) {
	s.changeLetters(w, r, s.deps.Letters.Purge)
}

func (s *Server) changeLetters(w http.ResponseWriter, r *http.Request,
	do func(context.Context, Selection) (int, error),
) {
	var sel Selection
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&sel); err != nil {
		fail(w, http.StatusBadRequest, "the body must be JSON such as {\"ids\": [1, 2]} or {\"all\": true}: "+err.Error())
		return
	}
	if err := sel.Validate(); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	n, err := do(r.Context(), sel)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.deps.Log.Info("dead letters changed", "change", r.URL.Path, "count", n, "remote", r.RemoteAddr)
	reply(w, Counted{Count: n})
}
