package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
)

// look is what the doubts are when they are looked at.
type look struct {
	all   []admin.Doubt
	err   error
	ended admin.EndedDoubt // of what is not there any more
}

// looks are the doubts of one second after the other. The last stays.
type looks struct {
	admin.Doubts
	left []look
	now  look
}

func (l *looks) ListDoubts(context.Context) ([]admin.Doubt, error) {
	l.now = l.left[0]
	if len(l.left) > 1 {
		l.left = l.left[1:]
	}
	return l.now.all, l.now.err
}

func (l *looks) EndedDoubt(context.Context, string) (admin.EndedDoubt, error) {
	if l.now.ended.ID == "" {
		return l.now.ended, admin.ErrNoDoubt
	}
	return l.now.ended, nil
}

// wait waits for the doubt a1.
func wait(ctx context.Context, left ...look) (string, error) {
	return waitFor(ctx, &looks{left: left}, "a1", func(string, *event.Progress) {})
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
		answer, err := waitFor(t.Context(), &looks{left: []look{
			doubtful(""),
			doubtful("first of\ntwo passes"),
			{err: errors.New("no freshet answers")},
			doubtful("second of two passes"),
			{
				all:   []admin.Doubt{{ID: "b2"}},
				ended: admin.EndedDoubt{ID: "a1", How: admin.DoubtAnswered, Answer: "3 keys\nforgotten"},
			},
		}}, "a1", func(text string, _ *event.Progress) { said = append(said, text) })
		if err != nil || answer != "3 keys forgotten" || time.Since(began) != 4*time.Second {
			t.Fatalf("%q, %v, after %s", answer, err, time.Since(began))
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
		_, err := wait(t.Context(), doubtful(""), stuck)
		if err == nil || err.Error() != "doubt a1 cannot be answered: product:{name} holds free text" {
			t.Error(err)
		}
	})
}

func TestADoubtThatWasDismissedWasNotAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dismissed := look{ended: admin.EndedDoubt{ID: "a1", How: admin.DoubtDismissed}}
		if _, err := wait(t.Context(), doubtful(""), dismissed); exitCode(err) != exitEnded {
			t.Error(err)
		}
	})
}

func TestAWarmUpThatWasCancelledIsNotDone(t *testing.T) {
	e := app.EndedWarmUp{WarmUp: app.WarmUp{ID: "a1", Answer: "12 rows read"}, Done: true}
	if answer, err := warmed(&e); err != nil || answer != "12 rows read" {
		t.Errorf("%q, %v", answer, err)
	}
	e.Done = false
	if _, err := warmed(&e); exitCode(err) != exitFailed || !strings.Contains(err.Error(), "12 rows read") {
		t.Error(err)
	}
	e.Cancelled = true
	if _, err := warmed(&e); exitCode(err) != exitEnded {
		t.Error(err)
	}
}

// stati are what GET /status says one second after the other. The last stays. Empty: nobody answers.
type stati []app.Status

func (l *stati) Status(context.Context) (json.RawMessage, error) {
	now := (*l)[0]
	if len(*l) > 1 {
		*l = (*l)[1:]
	}
	if now.Version == "" {
		return nil, admin.ErrAway
	}
	return json.Marshal(now)
}

// A freshet that has just been started answers before it has read which warm-ups there are.
func TestAWarmUpIsWaitedForThroughARestart(t *testing.T) {
	t.Parallel()
	goes := app.Status{Version: "v", WarmUps: []app.WarmUp{{ID: "a1", Answer: "reading rows"}}}
	starts := app.Status{Version: "v", Started: time.Now().Add(time.Hour), WarmUpsUnknown: true}
	ended := starts
	ended.WarmUpsUnknown = false
	ended.EndedWarmUps = []app.EndedWarmUp{{WarmUp: app.WarmUp{ID: "a1", Answer: "12 rows read"}, Done: true}}
	other := starts
	other.WarmUpsUnknown = false
	for name, c := range map[string]struct {
		says stati
		want string
	}{
		"it goes on":                  {stati{goes, {}, starts, starts, goes, ended}, ""},
		"another process is asked":    {stati{other, goes, other, ended}, ""},
		"it is known of no more":      {stati{goes, other}, "does not know of warm-up a1 any more"},
		"nobody answers any more":     {stati{goes, {}}, admin.ErrAway.Error()},
		"the start takes two minutes": {append(slices.Repeat(stati{starts}, 120), ended), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer, err := waitForWarmUp(t.Context(), &c.says, "a1", func(string, *event.Progress) {})
				switch {
				case c.want == "" && (err != nil || answer != "12 rows read"):
					t.Errorf("%q, %v", answer, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("%q, %v", answer, err)
				}
			})
		})
	}
}

// What is known is about the doubt of this name that was there before, or nothing is: that is no answer.
func TestAnEndThatNobodyKnowsIsNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		came := doubtful("")
		came.all[1].Last = time.Now()
		before := admin.EndedDoubt{ID: "a1", How: admin.DoubtAnswered, Last: time.Now().Add(-time.Second)}
		for _, gone := range []look{{}, {ended: before}} {
			_, err := wait(t.Context(), came, gone)
			if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "not known whether it was answered or dismissed") {
				t.Error(err)
			}
		}
	})
}

func TestAFreshetThatIsGoneForLongEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := wait(t.Context(), doubtful(""), look{err: admin.ErrAway})
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
		_, err := wait(ctx, doubtful(""))
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

// The sentences are those that freshet says; 80 columns is what most terminals have.
func TestProgressShowsItsNumbersIn80Columns(t *testing.T) {
	t.Parallel()
	far := event.Progress{Done: 4_300_000, Of: 10_000_000, Keys: 1_234_567, PerSecond: 123_456, Left: 4210}
	const numbers = "[########------------]  43% 123456 a second, about 1h10m0s left, 1234567 keys; "
	for _, text := range []string{
		"being answered, by doing the changes again: at the changes of 2026-01-31T08:00:00Z, binlog.000112:1234567, " +
			"1234567 keys forgotten",
		"being answered, by reading the rows of shop.product: 4300000 rows read, 1234567 keys forgotten",
		"being answered, first of two passes over redis: 4300000 of about 10000000 keys looked at, 1234567 forgotten",
	} {
		var out strings.Builder
		p := progress{out: &out, width: 80}
		p.reached(text, &far)
		line := strings.TrimPrefix(out.String(), "\r\x1b[K")
		if !strings.HasPrefix(line, numbers[:78]) || utf8.RuneCountInString(line) >= 80 {
			t.Errorf("%q", line)
		}
	}
}

// A dry run has a bar where it is known how much there is, and a pace everywhere.
func TestADryRunSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	var m event.Meter
	var p scope.Progress
	now := time.Now()
	for i, c := range []struct {
		looked, all, found int64
		want               string
	}{
		{100, 0, 3, "3 keys; 100 looked at, 3 keys found"},
		{300, 0, 5, "200 a second, 5 keys; 300 looked at, 5 keys found"},
		{500, 1000, 7, "[##########----------]  50% 200 a second, about 3s left, 7 keys; 500 of about 1000 looked at, 7 keys found"},
		{1001, 1000, 9, "300 a second, 9 keys; 1001 looked at, 9 keys found"},
	} {
		p.Looked.Store(c.looked)
		p.Keys.Store(c.all)
		p.Found.Store(c.found)
		var out strings.Builder
		bar := progress{out: &out, width: 200}
		bar.reached(looked(&m, now.Add(time.Duration(i)*time.Second), &p))
		if got := strings.TrimPrefix(out.String(), "\r\x1b[K"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	away := errors.New("dial tcp:\nconnection refused")
	p.Trouble.Store(&away)
	if text, _ := looked(&m, now, &p); !strings.HasPrefix(text, "waiting for redis (dial tcp: connection refused): 1001 ") {
		t.Errorf("while redis does not answer: %q", text)
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
