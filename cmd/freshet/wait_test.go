package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/event"
)

// look is what the doubts are when they are looked at.
type look struct {
	all []admin.Doubt
	err error
}

// looks are the doubts of one second after the other. The last stays.
type looks struct {
	admin.Doubts
	left []look
}

func (l *looks) ListDoubts(context.Context) ([]admin.Doubt, error) {
	now := l.left[0]
	if len(l.left) > 1 {
		l.left = l.left[1:]
	}
	return now.all, now.err
}

// doubtful is a look that shows a doubt with this answer.
func doubtful(answer string) look {
	return look{all: []admin.Doubt{{ID: "b2"}, {ID: "a1", Answer: answer}}}
}

func TestADoubtIsWaitedForUntilItIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said []string
		began := time.Now()
		err := waitFor(t.Context(), &looks{left: []look{
			doubtful(""),
			doubtful("first of\ntwo passes"),
			{err: errors.New("no freshet answers")},
			doubtful("second of two passes"),
			{all: []admin.Doubt{{ID: "b2"}}},
		}}, "a1", func(text string, _ *event.Progress) { said = append(said, text) })
		if err != nil || time.Since(began) != 4*time.Second {
			t.Fatalf("%v, after %s", err, time.Since(began))
		}
		if want := []string{
			"waiting for its answer", "first of two passes", "freshet does not answer; trying again: no freshet answers",
			"second of two passes",
		}; !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
	})
}

func TestADoubtThatCannotBeAnsweredEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := doubtful("product:{name} holds free text")
		stuck.all[1].Stuck = true
		err := waitFor(t.Context(), &looks{left: []look{doubtful(""), stuck}}, "a1", func(string, *event.Progress) {})
		if err == nil || err.Error() != "doubt a1 cannot be answered: product:{name} holds free text" {
			t.Error(err)
		}
	})
}

func TestAFreshetThatIsGoneForLongEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		gone := &looks{left: []look{doubtful(""), {err: admin.ErrAway}}}
		err := waitFor(t.Context(), gone, "a1", func(string, *event.Progress) {})
		if d := time.Since(began); !errors.Is(err, admin.ErrAway) || d < away || d > away+5*time.Second {
			t.Errorf("%v, after %s", err, d)
		}
	})
}

func TestAWaitCanBeEndedByHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := waitFor(ctx, &looks{left: []look{doubtful("")}}, "a1", func(string, *event.Progress) {})
		if err == nil || !strings.Contains(err.Error(), "no longer waiting for doubt a1, which goes on") {
			t.Error(err)
		}
	})
}

func TestProgressIsOneLineOnATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := progress{out: &out, width: 12}
	for _, text := range []string{"one", "one", "two", "a line that is too long", "fits in it."} {
		p.say(text)
	}
	p.end()
	if want := "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Ka line tha…\r\x1b[Kfits in it.\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestProgressIsABarWhereATerminalHasRoom(t *testing.T) {
	t.Parallel()
	far := &event.Progress{Done: 250, Of: 1000, PerSecond: 50, Left: 15}
	for width, want := range map[int]string{
		100: "\r\x1b[K[#####---------------]  25% 50 a second, about 15s left; reading rows\r\x1b[Ksomething\n",
		40:  "\r\x1b[K50 a second, about 15s left; reading rows\r\x1b[Ksomething\n",
		0:   "50 a second, about 15s left; reading rows\n",
	} {
		var out strings.Builder
		p := progress{out: &out, width: width}
		p.reached("reading rows", far)
		p.reached("something", nil)
		p.end()
		if got := strings.Replace(out.String(), "reading r…", "reading rows", 1); got != want {
			t.Errorf("in %d characters: %q, want %q", width, out.String(), want)
		}
	}
}

func TestProgressIsALineNowAndThenElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := progress{out: &out}
		for _, text := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"} {
			p.say(text)
			time.Sleep(time.Second)
		}
		for range 60 {
			p.say("12")
			time.Sleep(time.Second)
		}
		p.end()
		if out.String() != "0\n10\n12\n" {
			t.Errorf("%q", out.String())
		}
	})
}
