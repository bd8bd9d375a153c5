package admin

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// Check is one line of /readyz?verbose.
type Check struct {
	Name string
	// Err is nil when it is well; else it says what is not, in a sentence.
	Err error
}

// Deps are what the server shows and does. All functions may be called from many goroutines at once.
type Deps struct {
	// Live fails when the process is beyond help and should be restarted.
	Live func() error
	// Ready tells whether the cache is being kept fresh.
	Ready func() []Check
	// Status is what GET /status returns as JSON.
	Status func() any
	// Tail calls each with events as they pass, until ctx ends or each fails. An event is encoded as JSON. Nil where
	// none pass.
	Tail func(ctx context.Context, each func(event any) error) error
	// Hot is what GET /hot returns as JSON: the keys and tables that change most. Nil where none are counted.
	Hot func() any
	// Letters are the dead letters.
	Letters Letters
	// Doubts are what may have left stale keys.
	Doubts Doubts
	// Invalidations has keys forgotten that an operator names. Nil where that cannot be asked for.
	Invalidations Invalidations
	// Warming carries out warm-ups. Nil where none can be asked for.
	Warming Warming
	// Metrics is what GET /metrics shows.
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// Options configure the server. An empty Listen or MetricsListen means that nothing listens there.
type Options struct {
	Listen, MetricsListen string
	// Token is the bearer token; see the package comment for what needs it.
	Token string
	// TLS, when not nil, is used on both listeners.
	TLS *tls.Config
}

// Server serves the admin and the metrics listener.
type Server struct {
	deps    Deps
	opts    Options
	admin   net.Listener
	metrics net.Listener
	// streams has room for as many as are served at once.
	streams chan struct{}
	// bodies has room for the bytes of bodies that are read at once, see [Server.readInvalidation].
	bodies *semaphore.Weighted
}

// headerTimeout bounds how long a client may take to send its request's header.
const headerTimeout = 10 * time.Second

// New binds the listeners, so that a port in use is known before anything else starts. An admin listener off
// loopback without a token is refused.
func New(d Deps, o Options) (*Server, error) {
	s := &Server{
		deps: d, opts: o, streams: make(chan struct{}, maxStreams), bodies: semaphore.NewWeighted(maxInvalidation),
	}
	if o.Listen != "" && o.Token == "" && !loopback(o.Listen) {
		return nil, fmt.Errorf("admin.listen %s is not on loopback: set admin.token (or token_file), or listen on 127.0.0.1",
			o.Listen)
	}
	var err error
	if s.admin, err = listen(o.Listen, "admin.listen"); err != nil {
		return nil, err
	}
	if s.metrics, err = listen(o.MetricsListen, "admin.metrics_listen"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func listen(addr, key string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		whose := ""
		if errors.Is(err, syscall.EADDRINUSE) {
			whose = ": another program listens there, maybe another freshet"
		}
		return nil, fmt.Errorf("%s %s: %w%s; choose another address, or none to switch it off", key, addr, err, whose)
	}
	return l, nil
}

// Close closes the listeners of a server that was not run. After Run it does nothing.
func (s *Server) Close() error {
	var errs []error
	for _, l := range []net.Listener{s.admin, s.metrics} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends, then lets requests under way finish for up to two seconds.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if s.admin != nil {
		g.Go(func() error { return s.serve(ctx, s.admin, s.adminHandler()) })
	}
	if s.metrics != nil {
		g.Go(func() error { return s.serve(ctx, s.metrics, s.publicHandler()) })
	}
	return g.Wait()
}

func (s *Server) serve(ctx context.Context, l net.Listener, h http.Handler) error {
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.deps.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // a client that does not let go is cut off
	}
	<-served
	return nil
}

// publicHandler serves what anybody may see.
func (s *Server) publicHandler() http.Handler {
	mux := http.NewServeMux()
	s.public(mux)
	return mux
}

func (s *Server) public(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.deps.Metrics, promhttp.HandlerOpts{Timeout: headerTimeout}))
}

func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	s.public(mux)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.deps.Status()) })
	mux.HandleFunc("GET /tail", s.secret(s.tail))
	mux.HandleFunc("GET /hot", s.secret(s.hot))
	mux.HandleFunc("GET /dlq", s.secret(s.listLetters))
	mux.HandleFunc("GET /dlq/{id}", s.secret(s.showLetter))
	mux.HandleFunc("POST /dlq/replay", s.change(s.replayLetters))
	mux.HandleFunc("POST /dlq/purge", s.change(s.purgeLetters))
	mux.HandleFunc("GET /doubts", s.listDoubts) // no key names, and /status shows them too
	mux.HandleFunc("GET /doubts/{id}", s.showDoubt)
	mux.HandleFunc("GET /doubts/{id}/ended", s.endedDoubt)
	mux.HandleFunc("POST /doubts/{id}/dismiss", s.change(s.dismissDoubt))
	mux.HandleFunc("POST /doubts/{id}/answer", s.change(s.answerDoubt))
	mux.HandleFunc("POST /invalidate", s.change(s.invalidate))
	mux.HandleFunc("POST /warm", s.change(s.warm))
	mux.HandleFunc("POST /warm/{id}/cancel", s.change(s.cancelWarmUp))
	mux.HandleFunc("GET /debug/pprof/", s.secret(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", s.secret(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", s.secret(pprof.Trace))
	return s.guard(mux, page())
}

// guard refuses requests under a foreign host name (a browser that was lured by DNS rebinding) and, off loopback,
// requests without the token. The page's files need none: a browser shows no token when it opens an address, so it is
// the page that asks for it and sends it along with what it asks.
func (s *Server) guard(next http.Handler, page *http.ServeMux) http.Handler {
	local := loopback(s.admin.Addr().String())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local && !localHost(r.Host) {
			fail(w, http.StatusForbidden, "this listener is on loopback: use localhost or 127.0.0.1 in the address, not "+r.Host)
			return
		}
		if _, pattern := page.Handler(r); pattern != "" {
			page.ServeHTTP(w, r)
			return
		}
		if !local && !s.holdsToken(r) {
			s.unauthorized(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// secret wraps what shows key names or the inside of the process.
func (s *Server) secret(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Token != "" && !s.holdsToken(r) {
			s.unauthorized(w)
			return
		}
		h(w, r)
	}
}

// change wraps what changes something.
func (s *Server) change(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.opts.Token == "":
			fail(w, http.StatusForbidden,
				"changes need a token and none is configured: set admin.token (or token_file) and restart freshet")
		case !s.holdsToken(r):
			s.unauthorized(w)
		default:
			h(w, r)
		}
	}
}

func (s *Server) unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="freshet"`)
	fail(w, http.StatusUnauthorized, "this needs the token of admin.token: send it as Authorization: Bearer TOKEN")
}

func (s *Server) holdsToken(r *http.Request) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && s.opts.Token != "" && subtle.ConstantTimeCompare([]byte(got), []byte(s.opts.Token)) == 1
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	if err := s.deps.Live(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	var b strings.Builder
	ready := true
	for _, c := range s.deps.Ready() {
		if c.Err == nil {
			fmt.Fprintf(&b, "[+] %s ok\n", c.Name)
			continue
		}
		ready = false
		fmt.Fprintf(&b, "[-] %s: %v\n", c.Name, c.Err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	switch {
	case r.URL.Query().Has("verbose"), !ready:
		fmt.Fprint(w, b.String())
	default:
		fmt.Fprintln(w, "ok")
	}
}

func (s *Server) hot(w http.ResponseWriter, _ *http.Request) {
	if s.deps.Hot == nil {
		fail(w, http.StatusNotFound, "this process deletes no keys, so it counts none: ask an invalidator")
		return
	}
	reply(w, s.deps.Hot())
}

// tail streams events as lines of JSON.
func (s *Server) tail(w http.ResponseWriter, r *http.Request) {
	if s.deps.Tail == nil {
		fail(w, http.StatusNotFound, "this process reads no source, so there is nothing to tail: ask the reader that leads")
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	if flush.Flush() != nil {
		return // the client has gone
	}
	enc := json.NewEncoder(w)
	// An error here means that the client has gone, which is how a tail ends.
	_ = s.deps.Tail(r.Context(), func(e any) error {
		if err := enc.Encode(e); err != nil {
			return err
		}
		return flush.Flush()
	})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the only failure left is a client that has gone
}

// Failure is the body of every refusal on the admin listener.
type Failure struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Failure{Error: message})
}

// loopback reports whether an address to listen on is reachable from this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	return localHost(host)
}

// localHost reports whether a Host header, with or without port, names this machine.
func localHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
