package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/retry"
)

var (
	errAway   = errors.New("connection refused")
	errDenied = errors.New("denied")
)

// said is what a reporter has said, in order.
type said []string

func (s *said) reporter() *retry.Reporter {
	return &retry.Reporter{
		Failed:    func(err error) { *s = append(*s, err.Error()) },
		Recovered: func(lasted time.Duration) { *s = append(*s, "over after "+lasted.String()) },
		Kind:      func(err error) (string, bool) { return err.Error(), errors.Is(err, errAway) },
	}
}

func (s *said) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(*s, want) {
		t.Errorf("it said %q, want %q", *s, want)
	}
	*s = nil
}

// steady waits a second between attempts.
func steady(r *retry.Reporter) *retry.Loop {
	return &retry.Loop{Backoff: retry.Backoff{Min: time.Second, Max: time.Second, Rand: always(almostOne)}, Reporter: r}
}

// failing returns an attempt that fails so often before it succeeds.
func failing(times int, err error) func() error {
	return func() error {
		if times--; times >= 0 {
			return err
		}
		return nil
	}
}

func TestALoopTriesUntilAnAttemptSucceedsAndSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s said
		l := steady(s.reporter())
		notes := 0
		l.Note = func(error, time.Duration) { notes++ }
		for range 2 { // the second time it is news again
			if err := l.Do(t.Context(), failing(30, errAway)); err != nil {
				t.Fatal(err)
			}
			if notes != 30 || l.Failing() {
				t.Errorf("%d failures were noted, want 30", notes)
			}
			if len(s) != 2 || s[0] != errAway.Error() {
				t.Errorf("it said %q", s)
			}
			notes, s = 0, nil
		}
	})
}

func TestAFailureThatGoesOnIsReportedAgainEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s said
		l := steady(s.reporter())
		if err := l.Do(t.Context(), failing(150, errAway)); err != nil {
			t.Fatal(err)
		}
		if len(s) != 4 { // and its end
			t.Errorf("in two and a half minutes it said %q", s)
		}
	})
}

func TestAnotherKindOfFailureIsReportedAtOnce(t *testing.T) {
	var s said
	l := steady(s.reporter())
	for _, err := range []error{errAway, errAway, errDenied, errAway, errDenied} {
		l.Failed(err)
	}
	s.expect(t, "connection refused", "denied")
}

func TestWhatPassesByItselfIsReportedAfterTheGraceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s said
		r := s.reporter()
		r.Grace = 10 * time.Second
		l := steady(r)
		if err := l.Do(t.Context(), failing(9, errAway)); err != nil {
			t.Fatal(err)
		}
		s.expect(t)
		l.Failed(errDenied)
		s.expect(t, "denied")
		time.Sleep(10 * time.Second)
		l.Failed(errAway)
		s.expect(t, "connection refused")
	})
}

func TestLoopsThatShareAReporterAreOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s said
		r := s.reporter()
		a, b, c := steady(r), steady(r), steady(r)
		for _, l := range []*retry.Loop{a, b, c, a, b, c} {
			l.Failed(errAway)
		}
		s.expect(t, "connection refused")
		time.Sleep(time.Second)
		a.Succeeded()
		a.Succeeded()
		s.expect(t)
		b.Stop() // nobody waits for its success any more
		c.Succeeded()
		s.expect(t, "over after 1s")
		c.Failed(errAway)
		s.expect(t, "connection refused")
		c.Stop()
		s.expect(t)
	})
}

func TestALoopEndsWithAFinalErrorOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s said
		l := steady(s.reporter())
		l.Final = func(err error) bool { return errors.Is(err, errDenied) }
		if err := l.Do(t.Context(), failing(1, errDenied)); !errors.Is(err, errDenied) {
			t.Errorf("it returns %v", err)
		}
		s.expect(t)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		err := l.Do(ctx, failing(1000, errAway))
		if !errors.Is(err, errAway) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it returns %v", err)
		}
		s.expect(t, "connection refused", "connection refused")
		if err := l.Do(ctx, failing(1, errAway)); !errors.Is(err, errAway) {
			t.Errorf("after the end it returns %v", err)
		}
		s.expect(t)
		if err := l.Do(ctx, failing(0, nil)); err != nil {
			t.Errorf("an attempt that succeeds after the end: %v", err)
		}
	})
}

func TestWhatAReporterRemembersIsBounded(t *testing.T) {
	var s said
	l := steady(s.reporter())
	for n := range 1000 {
		l.Failed(fmt.Errorf("attempt %d", n))
	}
	if len(s) != 1000 {
		t.Errorf("%d of 1000 kinds were reported", len(s))
	}
	l.Failed(errors.New("attempt 999"))
	if len(s) != 1000 {
		t.Error("the last was reported twice")
	}
}

func TestALoopWithoutAReporterIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l retry.Loop
		if err := l.Do(t.Context(), failing(20, errAway)); err != nil {
			t.Error(err)
		}
	})
}
