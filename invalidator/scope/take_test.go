package scope

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/eventlog"
)

// What was asked for at a low rate and given up while it waited for its turn is not waited for by others.
func TestWhatIsGivenUpTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Deps{Redis: &fakeRedis{}, Serve: func(context.Context, eventlog.Partition) error { return nil }},
			Options{Rate: 1})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		take := func(ctx context.Context, n int, want time.Duration, fails error) {
			t.Helper()
			if err := s.Take(ctx, n); !errors.Is(err, fails) || time.Since(begin) != want {
				t.Errorf("%d keys: %v after %s, want %v after %s", n, err, time.Since(begin), fails, want)
			}
		}
		take(t.Context(), 100, 0, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		take(ctx, 500, 10*time.Second, context.DeadlineExceeded)
		take(t.Context(), 1, 100*time.Second, nil)
		take(t.Context(), 0, 101*time.Second, nil)
	})
}
