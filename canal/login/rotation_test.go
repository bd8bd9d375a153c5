package login

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/credential"
)

// denied is how MySQL refuses a password.
const denied = "\xff\x15\x04#28000Access denied for user 'u'"

// host makes connections to servers that answer the first logins with one packet each, and all others with OK.
type host struct {
	answers []string
	dials   int
	closed  int
	end     sync.WaitGroup
}

func (h *host) dial(context.Context, string, string) (net.Conn, error) {
	answer := "\x00\x00\x00\x02\x00\x00\x00"
	if h.dials < len(h.answers) {
		answer = h.answers[h.dials]
	}
	h.dials++
	client, server := net.Pipe()
	h.end.Go(func() { (&impostor{ask: []byte(answer), then: []byte(answer)}).serve(server) })
	return &counted{client, &h.closed}, nil
}

// counted counts that it is closed.
type counted struct {
	net.Conn
	closed *int
}

func (c *counted) Close() error {
	*c.closed++
	return c.Conn.Close()
}

// passwords is a file that holds one password after the other.
func passwords(t *testing.T, texts ...string) *credential.Source {
	t.Helper()
	dir := t.TempDir()
	script := "f=$(ls " + dir + " | head -1); cat " + dir + "/$f; [ $(ls " + dir + " | wc -l) = 1 ] || rm " + dir + "/$f"
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return credential.Command("source.password_command", []string{"sh", "-c", script})
}

func TestARefusedPasswordIsReadAgainOnAnotherConnection(t *testing.T) {
	for name, c := range map[string]struct {
		password *credential.Source
		answers  []string
		dials    int
		ok       bool
	}{
		"taken":                     {passwords(t, "a"), nil, 1, true},
		"changed meanwhile":         {passwords(t, "a", "b"), []string{denied}, 2, true},
		"refused twice":             {passwords(t, "a", "b"), []string{denied, denied}, 2, false},
		"not changed":               {passwords(t, "a"), []string{denied}, 1, false},
		"a text":                    {credential.Text("a"), []string{denied}, 1, false},
		"none":                      {nil, []string{denied}, 1, false},
		"refused for other reasons": {passwords(t, "a", "b"), []string{"\xff\x10\x04#08004Too many connections"}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{answers: c.answers}
			conn, err := Connect(t.Context(), Server{Address: "db:3306", User: "u", Password: c.password}, h.dial)
			var refused *mysql.MyError
			if (err == nil) != c.ok || err != nil && !errors.As(err, &refused) {
				t.Errorf("%v", err)
			}
			if err == nil {
				_ = conn.Close()
			}
			if h.end.Wait(); h.dials != c.dials || h.closed < h.dials {
				t.Errorf("%d connections, of which %d were closed; want %d", h.dials, h.closed, c.dials)
			}
		})
	}
}

func TestWhatCannotBeReadLeavesNoConnection(t *testing.T) {
	const nowhere = "/nowhere/password"
	for key, at := range map[string]Server{
		"source.password_file": {Password: credential.File("source.password_file", nowhere)},
		"source.tls.ca_file": {TLS: func() (*tls.Config, error) {
			return nil, &credential.Error{Key: "source.tls.ca_file", What: nowhere + ": no such file"}
		}},
	} {
		h := &host{}
		at.Address, at.User = "db:3306", "u"
		_, err := Connect(t.Context(), at, h.dial)
		if !credential.IsUnread(err) || !strings.HasPrefix(err.Error(), key+": "+nowhere) {
			t.Errorf("%v", err)
		}
		if h.end.Wait(); h.closed != h.dials {
			t.Errorf("%s: %d connections, of which %d were closed", key, h.dials, h.closed)
		}
	}
}

func TestNoCommandIsRunForAServerThatIsAway(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	away := errors.New("connection refused")
	_, err := Connect(t.Context(), Server{
		Address: "db:3306", User: "u", Password: credential.Command("k", []string{"touch", ran}),
	}, func(context.Context, string, string) (net.Conn, error) { return nil, away })
	if _, found := os.Stat(ran); !errors.Is(err, away) || found == nil {
		t.Errorf("%v; the command has run: %v", err, found == nil)
	}
}
