package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrAway is what a [Client] returns when nothing answers at the address: freshet does not run, or listens elsewhere.
var ErrAway = errors.New("no freshet answers")

// Client talks to a running freshet's admin listener. It implements [Letters], [Doubts], [Invalidations] and
// [Warming].
type Client struct {
	base  string
	shown string // base as messages have it
	token string
	http  *http.Client
	// timeout is callTimeout, but in tests.
	timeout time.Duration
}

// NewClient returns a client for the admin listener at base, such as http://127.0.0.1:8686.
func NewClient(base, token string, hc *http.Client) *Client {
	if hc == nil {
		hc = &http.Client{}
	}
	base = strings.TrimSuffix(base, "/")
	return &Client{base: base, shown: withoutUser(base), token: token, http: hc, timeout: callTimeout}
}

// withoutUser returns an address without what stands before its host, which may be a password.
func withoutUser(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	scheme, _, found := strings.Cut(address[:at], "://")
	if !found {
		return address[at+1:]
	}
	return scheme + "://" + address[at+1:]
}

// Status returns what GET /status says, as it is.
func (c *Client) Status(ctx context.Context) (json.RawMessage, error) {
	var raw json.RawMessage
	return raw, c.call(ctx, http.MethodGet, "/status", nil, &raw)
}

// Hot returns what GET /hot says, as it is.
func (c *Client) Hot(ctx context.Context) (json.RawMessage, error) {
	var raw json.RawMessage
	return raw, c.call(ctx, http.MethodGet, "/hot", nil, &raw)
}

// Tail calls each with every line of the tail until ctx ends, the server does, or each fails.
func (c *Client) Tail(ctx context.Context, each func(line []byte) error) error {
	res, err := c.send(ctx, http.MethodGet, "/tail", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	sc := bufio.NewScanner(res.Body)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		if err := each(sc.Bytes()); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return sc.Err()
}

// List implements [Letters].
func (c *Client) List(ctx context.Context, table string, after uint64, limit int) ([]Letter, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}, "limit": {strconv.Itoa(limit)}}
	if table != "" {
		q.Set("table", table)
	}
	var out []Letter
	return out, c.call(ctx, http.MethodGet, "/dlq?"+q.Encode(), nil, &out)
}

// Replay implements [Letters].
func (c *Client) Replay(ctx context.Context, s Selection) (int, error) {
	var n Counted
	err := c.call(ctx, http.MethodPost, "/dlq/replay", s, &n)
	return n.Count, err
}

// Purge implements [Letters].
func (c *Client) Purge(ctx context.Context, s Selection) (int, error) {
	var n Counted
	err := c.call(ctx, http.MethodPost, "/dlq/purge", s, &n)
	return n.Count, err
}

// callTimeout is how long a running freshet may take to answer anything but a tail: one that is frozen says nothing. It
// takes longest for keys that are named, 20 s, after which it says that it is not done.
const callTimeout = 30 * time.Second

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	res, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("%s%s: read the answer: %w", c.shown, path, err)
	}
	return nil
}

// send returns the response of a request that was not refused.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	var u *url.Error
	if errors.As(err, &u) {
		return nil, fmt.Errorf("%s is no address of an admin listener (--url): %w; write http://HOST:PORT", c.shown, u.Err)
	}
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	switch {
	case errors.Is(err, context.Canceled): // by the caller, which says nothing of freshet
		return nil, fmt.Errorf("%s: %w", c.shown+path, context.Canceled)
	case err != nil:
		if errors.As(err, &u) {
			err = u.Err // without the method and the address once more
		}
		return nil, fmt.Errorf("%w at %s: %w; does it run, and does it listen there (admin.listen, or --url)?", ErrAway,
			c.shown, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	var f Failure
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		f.Error = strings.TrimSpace(string(text))
	}
	return nil, &refusal{at: c.shown + path, status: res.Status, code: res.StatusCode, sentence: f.Error}
}

// refusal is what a running freshet says when it does not do what was asked.
type refusal struct {
	at, status string
	code       int
	sentence   string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("%s: %s: %s", r.at, r.status, r.sentence) }
