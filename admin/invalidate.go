package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Scope says which keys are meant, other than by their names: those that mappings can have made. Without a table, a
// template or a mapping it is about all of them.
type Scope struct {
	// Tables are schema.table. Templates are keys as they stand in the mappings, and Mappings are places in the
	// configuration, counted from 1. What any of them names is meant.
	Tables    []string `json:"tables,omitempty"`
	Templates []string `json:"templates,omitempty"`
	Mappings  []int    `json:"mappings,omitempty"`
	// Pattern is a glob as Redis has them, without redis.key_prefix: of all these keys, only those that match. Empty:
	// all.
	Pattern string `json:"pattern,omitempty"`
	// All means every key of every mapping. Nothing else is said then.
	All bool `json:"all,omitempty"`
	// Since means the keys of all changes since a time (RFC 3339), or since so long ago (10m). Nothing else is said then.
	Since string `json:"since,omitempty"`
	// Where is SQL: the keys that rows of the one table that is named make, as far as they meet it. Nothing else is said
	// then.
	Where string `json:"where,omitempty"`
}

// named reports whether a table, a template or a mapping is named.
func (s *Scope) named() bool { return len(s.Tables)+len(s.Templates)+len(s.Mappings) > 0 }

// Invalidation says which keys to forget: a scope, or keys by their names.
type Invalidation struct {
	Scope
	// Keys are names without redis.key_prefix.
	Keys []string `json:"keys,omitempty"`
}

// The bounds of an invalidation.
const (
	maxKeys = 10_000
	// maxKey and maxPattern are in bytes; maxKey is what a mapping's key may have at most.
	maxKey     = 64 << 10
	maxPattern = 1 << 10
	// maxNames is how many tables, templates and mappings may be named.
	maxNames = 1000
	// maxInvalidation bounds the body, in bytes.
	maxInvalidation = 16 << 20
)

// Validate refuses what says nothing, or two things at once, or too much.
func (i *Invalidation) Validate() error {
	kinds := 0
	for _, given := range []bool{len(i.Keys) > 0, i.named() || i.Pattern != "" || i.Where != "", i.All, i.Since != ""} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds == 0:
		return errors.New("say which keys to forget: by name, or tables, mappings, a pattern, or all")
	case kinds > 1 && i.Since != "":
		return errors.New("since stands alone: without keys, tables, mappings, pattern and all")
	case kinds > 1 && i.All:
		return errors.New("all stands alone: without keys, tables, mappings and pattern")
	case kinds > 1:
		return errors.New("keys stand alone: without tables, mappings and pattern")
	case i.Where != "" && (len(i.Tables) != 1 || len(i.Templates)+len(i.Mappings) > 0 || i.Pattern != ""):
		return errors.New("where is about the rows of one table: name that, and no mappings and no pattern")
	case len(i.Keys) > maxKeys:
		return fmt.Errorf("%d keys are too many: at most %d at once", len(i.Keys), maxKeys)
	case len(i.Tables)+len(i.Templates)+len(i.Mappings) > maxNames:
		return fmt.Errorf("more than %d tables and mappings are named: name all", maxNames)
	case len(i.Pattern) > maxPattern:
		return fmt.Errorf("the pattern has %d bytes: at most %d", len(i.Pattern), maxPattern)
	case !utf8.ValidString(i.Pattern):
		return errors.New("the pattern is not UTF-8: write ? for a byte that is not")
	}
	if err := validWhere(i.Where); err != nil {
		return err
	}
	for n, key := range i.Keys {
		switch {
		case key == "":
			return fmt.Errorf("key %d is empty", n+1)
		case len(key) > maxKey:
			return fmt.Errorf("key %d has %d bytes: at most %d", n+1, len(key), maxKey)
		case !utf8.ValidString(key):
			return fmt.Errorf("key %d is not UTF-8: such a key can only be deleted in Redis", n+1)
		}
	}
	return nil
}

// Invalidations has keys forgotten. [Client] is one as well.
type Invalidations interface {
	// Invalidate records a doubt about the keys of a scope, which is then answered. It fails with [Unfit] if the scope
	// names what there is not, and with [NotHere].
	Invalidate(ctx context.Context, s Scope) (Recorded, error)
	// InvalidateKeys has keys forgotten now, and returns once all are finished. It fails with [NotHere] where there is no
	// Redis.
	InvalidateKeys(ctx context.Context, keys []string) (Forgotten, error)
}

// Unfit is what is wrong with what was asked for, in a sentence.
type Unfit string

// Error implements error.
func (u Unfit) Error() string { return string(u) }

// NotHere is why this process cannot do what was asked for, and which can, in a sentence.
type NotHere string

// Error implements error.
func (n NotHere) Error() string { return string(n) }

// Recorded is the answer to an invalidation of a scope: the ID of the doubt that stands for it.
type Recorded struct {
	ID string `json:"id"`
	// Remark is what is probably not meant, in a sentence; mostly empty.
	Remark string `json:"remark,omitempty"`
}

// Forgotten is the answer to an invalidation of keys: how many.
type Forgotten struct {
	Count int `json:"count"`
	// Remark is what is probably not meant, in a sentence; mostly empty.
	Remark string `json:"remark,omitempty"`
}

func (s *Server) invalidate(w http.ResponseWriter, r *http.Request) {
	if s.deps.Invalidations == nil {
		fail(w, http.StatusNotImplemented, "this process cannot have keys forgotten: ask one that has Redis and the mappings")
		return
	}
	i, code, err := s.readInvalidation(w, r)
	if err != nil {
		fail(w, code, err.Error())
		return
	}
	if len(i.Keys) > 0 {
		done, err := s.deps.Invalidations.InvalidateKeys(r.Context(), i.Keys)
		if refuse(w, err) {
			return
		}
		s.deps.Log.Info("keys invalidated by hand", "count", done.Count, "remote", r.RemoteAddr)
		reply(w, done)
		return
	}
	done, err := s.deps.Invalidations.Invalidate(r.Context(), i.Scope)
	if refuse(w, err) {
		return
	}
	s.deps.Log.Info("keys to be invalidated by hand", "doubt", done.ID, "tables", strings.Join(i.Tables, ", "),
		"remote", r.RemoteAddr)
	reply(w, done)
}

// bodyTimeout bounds how long a client may take to send a body, so that it does not hold up others for longer.
const bodyTimeout = time.Minute

// readInvalidation reads the body of a request, or returns what to answer instead. A body of many keys takes several
// times its length until it is read, so all that are read at once are as long as the longest may be; others wait.
func (s *Server) readInvalidation(w http.ResponseWriter, r *http.Request) (i Invalidation, code int, err error) {
	most := int64(maxInvalidation)
	if n := r.ContentLength; n >= 0 && n < most { // the server reads no more than that
		most = n
	}
	if err := s.bodies.Acquire(r.Context(), most); err != nil {
		return i, http.StatusServiceUnavailable, errors.New("freshet is stopping")
	}
	defer s.bodies.Release(most)
	body := bytes.NewBuffer(make([]byte, 0, most+bytes.MinRead)) // which it then need not grow
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout))
	_, err = body.ReadFrom(http.MaxBytesReader(w, r.Body, maxInvalidation))
	_ = conn.SetReadDeadline(time.Time{})
	switch tooLong := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLong):
		return i, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d MiB: send fewer keys at once",
			maxInvalidation>>20)
	case err != nil:
		return i, http.StatusBadRequest, fmt.Errorf("the body did not come whole within %s: %w", bodyTimeout, err)
	}
	i, err = parseInvalidation(body.Bytes())
	return i, http.StatusBadRequest, err
}

func parseInvalidation(body []byte) (i Invalidation, err error) {
	if !utf8.Valid(body) { // the decoder would make another key of it
		return i, errors.New("the body is not UTF-8: keys of other bytes cannot be named here")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&i); err != nil {
		return i, fmt.Errorf(`the body must be JSON such as {"tables": ["shop.product"]} or {"keys": ["product:17"]}: %w`, err)
	}
	return i, i.Validate()
}

// refuse answers with the error, if there is one.
func refuse(w http.ResponseWriter, err error) bool {
	var unfit Unfit
	var elsewhere NotHere
	switch {
	case err == nil:
		return false
	case errors.As(err, &unfit):
		fail(w, http.StatusBadRequest, err.Error())
	case errors.As(err, &elsewhere):
		fail(w, http.StatusNotImplemented, err.Error())
	default:
		fail(w, http.StatusInternalServerError, err.Error())
	}
	return true
}

// Invalidate implements [Invalidations].
func (c *Client) Invalidate(ctx context.Context, s Scope) (done Recorded, err error) {
	err = c.call(ctx, http.MethodPost, "/invalidate", Invalidation{Scope: s}, &done)
	return done, unfit(err)
}

// InvalidateKeys implements [Invalidations].
func (c *Client) InvalidateKeys(ctx context.Context, keys []string) (done Forgotten, err error) {
	err = c.call(ctx, http.MethodPost, "/invalidate", Invalidation{Keys: keys}, &done)
	return done, unfit(err)
}

// unfit returns what is wrong with a request as the server said it, if that is the trouble.
func unfit(err error) error {
	var r *refusal
	if errors.As(err, &r) && r.code == http.StatusBadRequest {
		return Unfit(r.sentence)
	}
	return err
}
