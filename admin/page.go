package admin

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// The page's files. They hold no data: what the page shows it asks for.
//
//go:embed page
var pageFiles embed.FS

// pagePolicy lets the page have its own files and connections to where it came from, and nothing else: no inline
// script or style, nothing from elsewhere, no frame around it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// page returns what serves the page's files.
func page() *http.ServeMux {
	mux := http.NewServeMux()
	for path, file := range map[string]string{
		"/{$}": "index.html", "/page.css": "page.css", "/page.js": "page.js", "/icon.svg": "icon.svg",
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cache-Control", "no-cache") // another version of freshet has another page
			http.ServeFileFS(w, r, pageFiles, "page/"+file)
		})
	}
	return mux
}

// The bounds of the event streams.
const (
	// maxStreams is how many streams are served at once.
	maxStreams = 16
	// streamEvery is the time between two events.
	streamEvery = time.Second
	// streamPatience is how long a client may take to accept an event.
	streamPatience = 10 * time.Second
)

// events streams the status as server-sent events, at once and then each second, until the client or the server ends.
// See https://html.spec.whatwg.org/multipage/server-sent-events.html for the form.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		fail(w, http.StatusServiceUnavailable,
			fmt.Sprintf("%d pages are watching already: close one, or use /status", maxStreams))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy in between is to pass each event on
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for s.sendStatus(w) == nil {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// sendStatus sends one event. An error means that the client has gone, or does not read.
func (s *Server) sendStatus(w http.ResponseWriter) error {
	b, err := json.Marshal(s.deps.Status())
	if err != nil {
		return err
	}
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Now().Add(streamPatience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil {
		return err
	}
	return c.Flush()
}
