package credential

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errRefused = errors.New("refused")
	errAway    = errors.New("away")
)

// server accepts one password and notes all that it is shown.
type server struct {
	accepts string
	shown   []string
	away    bool
}

func (s *server) login(secret string) error {
	s.shown = append(s.shown, secret)
	switch {
	case s.away:
		return errAway
	case secret != s.accepts:
		return errRefused
	}
	return nil
}

func (s *server) expect(t *testing.T, when string, err, want error, shown ...string) {
	t.Helper()
	if !errors.Is(err, want) || !slices.Equal(s.shown, shown) {
		t.Errorf("%s: %v, and it was shown %q; want %v and %q", when, err, s.shown, want, shown)
	}
	s.shown = nil
}

func refused(err error) bool { return errors.Is(err, errRefused) }

// outputs is a command that prints one text after the other, and the last one again and again.
func outputs(texts ...string) (s *Source, runs *int) {
	s, runs = Command("k", []string{"x"}), new(int)
	s.command.run = func(context.Context) (string, error) {
		text := texts[min(*runs, len(texts)-1)]
		*runs++
		if text == "" {
			return "", errors.New("failed")
		}
		return text, nil
	}
	return s, runs
}

func TestARefusedSecretIsReadAgainOnce(t *testing.T) {
	to := &server{accepts: "new"}
	s, _ := outputs("old", "new")
	to.expect(t, "changed meanwhile", s.Try(t.Context(), to.login, refused), nil, "old", "new")
	s, runs := outputs("old")
	to.expect(t, "not changed", s.Try(t.Context(), to.login, refused), errRefused, "old")
	if *runs != 2 {
		t.Errorf("%d readings, want 2", *runs)
	}
	s, _ = outputs("old", "older", "new")
	to.expect(t, "refused twice", s.Try(t.Context(), to.login, refused), errRefused, "old", "older")
	s, _ = outputs("old", "")
	err := s.Try(t.Context(), to.login, refused)
	to.expect(t, "not to be read again", err, errRefused, "old")
	if !IsUnread(err) {
		t.Errorf("%v does not say that it could not be read", err)
	}
	to.expect(t, "a text", Text("old").Try(t.Context(), to.login, refused), errRefused, "old")
	to.away = true
	s, runs = outputs("old", "new")
	to.expect(t, "a server that is away", s.Try(t.Context(), to.login, refused), errAway, "old")
	if *runs != 1 {
		t.Errorf("%d readings for a server that is away, want 1", *runs)
	}
	s, _ = outputs("")
	if err := s.Try(t.Context(), to.login, refused); !IsUnread(err) || len(to.shown) != 0 {
		t.Errorf("a command that fails: %v, and the server was shown %q", err, to.shown)
	}
}

func TestWhoLogsInOftenRunsTheCommandOnlyWhenItIsRefused(t *testing.T) {
	to := &server{accepts: "a"}
	s, runs := outputs("a", "b", "c")
	login := func() error { return s.Seldom(t.Context(), to.login, refused) }
	to.expect(t, "the first", login(), nil, "a")
	to.expect(t, "the second", login(), nil, "a")
	to.away = true
	to.expect(t, "away", login(), errAway, "a")
	to.away, to.accepts = false, "b"
	to.expect(t, "changed", login(), nil, "a", "b")
	to.expect(t, "after the change", login(), nil, "b")
	to.accepts = "x"
	to.expect(t, "refused", login(), errRefused, "b", "c")
	to.accepts = "c"
	to.expect(t, "what was refused is not kept", login(), nil, "b", "c")
	if *runs != 4 {
		t.Errorf("%d runs, want 4", *runs)
	}
	file := t.TempDir() + "/password"
	f := File("k", file)
	for _, text := range []string{"1", "2"} { // to read a file costs nothing
		write(t, file, text)
		to.accepts = text
		to.expect(t, "a file", f.Seldom(t.Context(), to.login, refused), nil, text)
	}
	to.accepts = "fixed"
	to.expect(t, "a text", Text("fixed").Seldom(t.Context(), to.login, refused), nil, "fixed")
}

// Ten connections that are lost together do not start ten commands, and none of them gets what was read before it
// asked.
// A prober and several writers log in again and again while nobody lets them. A command may be dear, or its server may
// count how often it is asked.
func TestACommandThatIsOfNoUseIsRunTwiceASecondAtMost(t *testing.T) {
	for name, texts := range map[string][]string{"refused": {"old"}, "fails": {""}} {
		synctest.Test(t, func(t *testing.T) {
			to := &server{accepts: "new"}
			s, runs := outputs(texts...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for ctx.Err() == nil {
				if err := s.Try(ctx, to.login, refused); err == nil {
					t.Fatal("it is logged in")
				}
				time.Sleep(10 * time.Millisecond)
			}
			if *runs < 50 || *runs > 2*60+2 {
				t.Errorf("%s: %d runs in a minute", name, *runs)
			}
		})
	}
}

func TestLoginsThatWaitTogetherShareARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, runs, gate := "old", 0, make(chan struct{})
		s := Command("k", []string{"x"})
		s.command.run = func(context.Context) (string, error) {
			runs++
			text := secret
			<-gate
			return text, nil
		}
		got := make(chan string, 11)
		read := func() {
			text, err := s.Read(t.Context())
			got <- fmt.Sprint(text, err)
		}
		go read()
		synctest.Wait()
		secret = "new"
		for range 10 {
			go read()
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if runs != 2 || len(got) != 11 {
			t.Fatalf("%d runs for %d logins, want 2", runs, len(got))
		}
		counts := map[string]int{}
		for range 11 {
			counts[<-got]++
		}
		if counts["old<nil>"] != 1 || counts["new<nil>"] != 10 {
			t.Errorf("they got %v", counts)
		}
		go read()
		synctest.Wait()
		if runs != 3 {
			t.Errorf("a later login got what an earlier one had read: %d runs", runs)
		}
		<-got
	})
}

func TestARunThatIsGivenUpIsMadeAgainForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		s := Command("k", []string{"x"})
		s.command.run = func(ctx context.Context) (string, error) {
			if runs++; runs == 1 {
				return "first", nil
			}
			if runs == 2 {
				<-ctx.Done()
				return "", errors.New("killed")
			}
			return "third", nil
		}
		impatient, cancel := context.WithCancel(t.Context())
		errs, got := make(chan error, 1), make(chan string, 3)
		if text, err := s.Read(t.Context()); text != "first" || err != nil {
			t.Fatal(text, err)
		}
		go func() {
			_, err := s.Read(impatient)
			errs <- err
		}()
		synctest.Wait()
		for range 3 {
			go func() {
				text, err := s.Read(t.Context())
				got <- fmt.Sprint(text, err)
			}()
		}
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) || IsUnread(err) {
			t.Errorf("the one that gave up: %v", err)
		}
		for range 3 {
			if text := <-got; text != "third<nil>" {
				t.Errorf("the others got %s", text)
			}
		}
		if runs != 3 {
			t.Errorf("%d runs, want 3", runs)
		}
	})
}

func TestWhoGivesUpWaitingDoesNotWaitForTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := Command("k", []string{"x"})
		s.command.run = func(context.Context) (string, error) {
			<-gate
			return "x", nil
		}
		done := make(chan struct{})
		go func() {
			_, _ = s.Read(t.Context())
			close(done)
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Read(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		close(gate)
		<-done
	})
}

func TestTheEnvironmentIsTheCommands(t *testing.T) {
	t.Setenv("VAULT_ADDR", "https://vault.example")
	text, err := shell(`echo "$VAULT_ADDR"; read line || echo no input >&2`).Read(t.Context())
	if text != os.Getenv("VAULT_ADDR") || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if !strings.Contains(text, "vault.example") {
		t.Error(text)
	}
}
