package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

const (
	// looksEach is how often a doubt that is waited for is looked at.
	looksEach = time.Second
	// saysEach is how often its progress is said where there is no terminal.
	saysEach = 10 * time.Second
	// away is for how long the running freshet may give no answer: it is restarted, or its brokers are.
	away = 30 * time.Second
)

// asked says that the answer to a doubt was asked for, and with wait returns once it is there. running says that a
// freshet was asked that can answer. With Kafka others may run where none was asked.
func (c *cli) asked(ctx context.Context, id string, running, wait bool) error {
	group := ""
	if !running {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		if cfg.EventLog.Kind == config.EventLogKafka {
			group = cfg.EventLog.Kafka.Group
		}
	}
	switch {
	case group != "" && wait:
		return fmt.Errorf("no freshet was asked, so none can be waited for: doubt %s is kept in Kafka, and the invalidators of "+
			"group %s answer it once they run; ask one of them with `freshet doubts answer %s --wait --url …`", id, group, id)
	case group != "":
		_, err := fmt.Fprintf(c.stdout, "doubt %s is kept in Kafka: the invalidators of group %s answer it once they run\n", id,
			group)
		return err
	case !running && wait:
		return fmt.Errorf("no freshet runs, so there is nothing to wait for: doubt %s is kept and will be answered once it "+
			"does; then ask with `freshet doubts answer %s --wait`", id, id)
	case !running:
		_, err := fmt.Fprintf(c.stdout, "no freshet runs: doubt %s will be answered once it does\n", id)
		return err
	case !wait:
		_, err := fmt.Fprintf(c.stdout, "asked for doubt %s to be answered: `freshet doubts show %s` says how far that is\n",
			id, id)
		return err
	}
	client, _, err := c.client()
	if err != nil {
		return err
	}
	p := progress{out: c.stderr, width: width(c.stderr)}
	answer, err := waitFor(ctx, client, id, p.reached)
	p.end()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "doubt %s is answered: %s\n", id, answer)
	return err
}

// errDismissed is what waiting for an answer ends with that will not be given: the doubt was dismissed.
var errDismissed = errors.New("dismissed before it was answered")

// waitFor returns once a doubt is answered, with how. It fails if it cannot be, and with errDismissed if it was
// dismissed. It hands how far that is to say.
func waitFor(ctx context.Context, doubts admin.Doubts, id string, reached func(text string, far *event.Progress),
) (string, error) {
	say := func(text string) { reached(text, nil) }
	answered := time.Now()
	var seen time.Time // the Last that it had
	for {
		all, err := doubts.ListDoubts(ctx)
		i := slices.IndexFunc(all, func(d admin.Doubt) bool { return d.ID == id })
		var e admin.EndedDoubt
		if err == nil && i < 0 {
			if e, err = doubts.EndedDoubt(ctx, id); errors.Is(err, admin.ErrNoDoubt) {
				return "", howUnknown(id)
			}
		}
		switch {
		case ctx.Err() != nil:
			return "", stoppedWaiting(ctx, id)
		case err != nil && time.Since(answered) > away:
			return "", err
		case err != nil:
			say("freshet does not answer; trying again: " + oneLine(err.Error()))
		case i < 0:
			return ended(&e, seen)
		case all[i].Stuck:
			return "", fmt.Errorf("doubt %s cannot be answered: %s", id, oneLine(all[i].Answer))
		default:
			seen = all[i].Last
			reached(cmp.Or(oneLine(all[i].Answer), "waiting for its answer"), all[i].Progress)
		}
		if err == nil {
			answered = time.Now()
		}
		if retry.Sleep(ctx, looksEach) != nil {
			return "", stoppedWaiting(ctx, id)
		}
	}
}

// ended says how a doubt ended that had come last at a time, or later.
func ended(e *admin.EndedDoubt, seen time.Time) (string, error) {
	switch {
	case e.Last.Before(seen): // that was the doubt of this name before
		return "", howUnknown(e.ID)
	case e.How == admin.DoubtAnswered:
		return oneLine(e.Answer), nil
	}
	so := ""
	if e.Answer != "" {
		so = " (so far: " + oneLine(e.Answer) + ")"
	}
	return "", fmt.Errorf("doubt %s was %w%s: not all that it is about was forgotten", e.ID, errDismissed, so)
}

func howUnknown(id string) error {
	return fmt.Errorf("doubt %s has ended, and it is not known whether it was answered or dismissed: freshet was restarted "+
		"meanwhile, and its log says so", id)
}

func stoppedWaiting(ctx context.Context, id string) error {
	return fmt.Errorf("no longer waiting for doubt %s, which goes on: %w", id, ctx.Err())
}

// progress says how far something is: on a terminal in one line that is written over, elsewhere in a line now and then.
type progress struct {
	out io.Writer
	// width is that of the terminal, in characters; 0: it is none.
	width int
	said  string
	at    time.Time
}

// barWidth is how wide a bar is, in characters, and leastForBar how wide a terminal has to be for one.
const barWidth, leastForBar = 20, 60

// reached says text with how far something is: its pace, how long the rest takes and how many keys there were, and on a
// terminal a bar. The numbers come first, so that a narrow terminal has them.
func (p *progress) reached(text string, far *event.Progress) {
	numbers := far.String()
	if far != nil && far.Keys > 0 && p.width > 0 { // elsewhere the whole text can be read
		if numbers != "" {
			numbers += ", "
		}
		numbers += fmt.Sprintf("%d keys", far.Keys)
	}
	if numbers != "" {
		text = numbers + "; " + text
	}
	if share, known := far.Share(); known && p.width >= leastForBar {
		done := int(share * barWidth)
		bar := strings.Repeat("#", done) + strings.Repeat("-", barWidth-done)
		text = fmt.Sprintf("[%s] %3.0f%% %s", bar, 100*share, text)
	}
	p.say(text)
}

// say says text, unless it was said just now.
func (p *progress) say(text string) {
	switch {
	case text == p.said:
		return
	case p.width > 0:
		line := []rune(text)
		if len(line) >= p.width {
			line = append(line[:max(0, p.width-2)], '…')
		}
		fmt.Fprintf(p.out, "\r\x1b[K%s", string(line))
	case p.said != "" && time.Since(p.at) < saysEach:
		return
	default:
		fmt.Fprintln(p.out, text)
	}
	p.said, p.at = text, time.Now()
}

// end leaves the line.
func (p *progress) end() {
	if p.width > 0 && p.said != "" {
		fmt.Fprintln(p.out)
	}
}

// width returns how many characters a line of the terminal has; 0 if w is none.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !terminal(w) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}
