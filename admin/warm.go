package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// WarmUp says which rows are read from their table, so that the mappings write their values to the cache.
type WarmUp struct {
	// Table is schema.table. Required.
	Table string `json:"table"`
	// Where is SQL that a row must meet. Empty: all rows.
	Where string `json:"where,omitempty"`
}

// maxWhere bounds a condition, in bytes.
const maxWhere = 4 << 10

// Validate refuses what says nothing, or too much.
func (w *WarmUp) Validate() error {
	if w.Table == "" {
		return errors.New("say which table: schema.table")
	}
	return validWhere(w.Where)
}

func validWhere(where string) error {
	if len(where) > maxWhere {
		return fmt.Errorf("the condition has %d bytes: at most %d", len(where), maxWhere)
	}
	return nil
}

// ErrNoWarmUp says that there is no such warm-up, or no more.
var ErrNoWarmUp = errors.New("no such warm-up")

// Warming carries out warm-ups. [Client] does as well.
type Warming interface {
	// Warm has rows read, and returns the id of that. It fails with [Unfit] if there is no such table, or the source
	// refuses the condition, and with [NotHere].
	Warm(ctx context.Context, w WarmUp) (id string, err error)
	// CancelWarmUp ends one. It fails with [ErrNoWarmUp].
	CancelWarmUp(ctx context.Context, id string) error
}

func (s *Server) warm(w http.ResponseWriter, r *http.Request) {
	if s.deps.Warming == nil {
		fail(w, http.StatusNotImplemented, "this process cannot fill the cache: ask one that has a source and Redis")
		return
	}
	var of WarmUp
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	err := dec.Decode(&of)
	if err == nil {
		err = of.Validate()
	}
	if err != nil {
		fail(w, http.StatusBadRequest, `the body must be JSON such as {"table": "shop.product"}: `+err.Error())
		return
	}
	id, err := s.deps.Warming.Warm(r.Context(), of)
	if refuse(w, err) {
		return
	}
	s.deps.Log.Info("a warm-up was asked for", "warm_up", id, "table", of.Table, "remote", r.RemoteAddr)
	reply(w, Recorded{ID: id})
}

func (s *Server) cancelWarmUp(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if s.deps.Warming == nil {
		fail(w, http.StatusNotFound, "there is no warm-up "+id)
		return
	}
	err := s.deps.Warming.CancelWarmUp(r.Context(), id)
	if errors.Is(err, ErrNoWarmUp) {
		fail(w, http.StatusNotFound, fmt.Sprintf("no warm-up %s: it has ended, or there was none", id))
		return
	}
	if refuse(w, err) {
		return
	}
	s.deps.Log.Info("a warm-up was cancelled", "warm_up", id, "remote", r.RemoteAddr)
	reply(w, Recorded{ID: id})
}

// Warm implements [Warming].
func (c *Client) Warm(ctx context.Context, w WarmUp) (string, error) {
	var done Recorded
	err := c.call(ctx, http.MethodPost, "/warm", w, &done)
	return done.ID, unfit(err)
}

// CancelWarmUp implements [Warming].
func (c *Client) CancelWarmUp(ctx context.Context, id string) error {
	var done Recorded
	err := c.call(ctx, http.MethodPost, "/warm/"+url.PathEscape(id)+"/cancel", nil, &done)
	var r *refusal
	if errors.As(err, &r) && r.code == http.StatusNotFound {
		return fmt.Errorf("%w: %s", ErrNoWarmUp, id)
	}
	return err
}
