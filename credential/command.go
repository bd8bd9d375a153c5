package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
)

const (
	// CommandTimeout is for how long a command may run.
	CommandTimeout = 10 * time.Second
	// leftover is how long the output is waited for once the command itself has ended: something that it has started
	// may still hold it.
	leftover = time.Second
	// pause is for how long no new login runs a command that has failed, or whose output was refused: those who log in
	// again and again would start one after the other.
	pause = time.Second
	// maxLine bounds what an error repeats of a command's stderr, in bytes.
	maxLine = 300
)

// command runs a command for all who wait for its output.
type command struct {
	words   []string
	timeout time.Duration
	// run runs the command once. Tests that are about who waits for whom have another one.
	run func(context.Context) (string, error)
	// turn holds a token while the command runs.
	turn chan struct{}

	mu sync.Mutex
	// next is the run that begins next: for all that came since the last one began.
	next *run
	// pauses is until when no run begins.
	pauses time.Time
}

// run is one run of a command. Its result may be looked at once done is closed.
type run struct {
	done chan struct{}
	text string
	err  error
}

func newCommand(words []string) *command {
	c := &command{words: words, timeout: CommandTimeout, turn: make(chan struct{}, 1)}
	c.run = c.execute
	return c
}

// read returns the output of a run that began after the call. A run that is under way may have seen what was there
// before, so the first to come afterwards begins another one, for all of them. The one that runs it does so on its own
// goroutine; if its context ends, another one of those that wait begins again.
func (c *command) read(ctx context.Context) (string, error) {
	r := c.join()
	select {
	case <-r.done:
		return r.text, r.err
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-c.turn }()
	select {
	case <-r.done:
		return r.text, r.err
	default:
	}
	if !c.paused(ctx) {
		return "", ctx.Err()
	}
	c.begins(r)
	text, err := c.run(ctx)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	r.text, r.err = text, err
	if err != nil {
		c.useless()
	}
	close(r.done)
	return text, err
}

// join returns the run that begins next.
func (c *command) join() *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &run{done: make(chan struct{})}
	}
	return c.next
}

// begins notes that nobody else may join a run.
func (c *command) begins(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == r {
		c.next = nil
	}
}

// useless notes that the last run led to no login.
func (c *command) useless() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses = time.Now().Add(pause)
}

// paused waits for the end of a pause; false when ctx ended first.
func (c *command) paused(ctx context.Context) bool {
	c.mu.Lock()
	left := time.Until(c.pauses)
	c.mu.Unlock()
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errTooMuch ends a command that prints more than a secret may have.
var errTooMuch = errors.New("prints more than 64KiB")

// execute runs the command, and returns what it printed. It is killed with all that it has started when its time is
// over, and what is still running when it ends is killed in any case.
func (c *command) execute(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.words[0], c.words[1:]...)
	// A group of its own is what can be killed as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error {
		if cmd.Process == nil {
			return nil
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.Cancel, cmd.WaitDelay = kill, leftover
	out, said := &bounded{most: MaxSize, full: errTooMuch, stop: cancel}, &bounded{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, said
	err := cmd.Run()
	_ = kill() // of the group, what the command has left; mostly nothing
	if cmd.Process != nil {
		bury(cmd.Process.Pid)
	}
	text := withoutBreak(out.String())
	switch {
	case out.over:
		return "", errTooMuch
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("had not ended after %s%s", c.timeout, said.line(text))
	case errors.Is(err, exec.ErrWaitDelay):
		return "", errors.New("ended, but something that it started still held its output")
	case err != nil && cmd.Process == nil:
		return "", fmt.Errorf("cannot be run: %w", startCause(err))
	case err != nil:
		return "", fmt.Errorf("failed (%w)%s", err, said.line(text))
	case text == "":
		return "", fmt.Errorf("printed nothing%s", said.line(text))
	}
	return text, nil
}

// bury waits for what was killed of a group, if it has become ours: the first process of a container is the parent of
// all orphans, and they are kept until it has waited for them. What does not end at once, such as a process that waits
// for a disk, is not waited for.
func bury(group int) {
	for pause := time.Millisecond; pause < leftover; pause *= 2 {
		pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		for errors.Is(err, syscall.EINTR) || err == nil && pid > 0 {
			pid, err = syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		}
		if err != nil { // none of the group is ours
			return
		}
		time.Sleep(pause)
	}
}

// startCause takes off an error what the sentence has already.
func startCause(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return Cause(err)
}

// bounded keeps so much of what is written to it.
type bounded struct {
	buf  bytes.Buffer
	most int
	// full is returned for what is more; nil: the rest is thrown away.
	full error
	stop func()
	over bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := min(len(p), b.most-b.buf.Len())
	b.buf.Write(p[:room])
	if room < len(p) && b.full != nil {
		b.over = true
		b.stop()
		return room, b.full
	}
	return len(p), nil
}

func (b *bounded) String() string { return b.buf.String() }

// line returns the first line that is no blank one, after a colon, in printable characters. Any line of the output that
// is in it is masked: what failed may have printed more than the secret.
func (b *bounded) line(output string) string {
	for line := range strings.Lines(b.buf.String()) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		line = masked(line, output)
		if len(line) > maxLine {
			line = strings.ToValidUTF8(line[:maxLine], "") + "…"
		}
		return ": " + strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, line)
	}
	return ""
}

// masked returns a line without any of the lines of output.
func masked(line, output string) string {
	lines := strings.Split(output, "\n")
	slices.SortFunc(lines, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	for _, secret := range lines {
		// A line of asterisks would be found in the mask, again and again.
		if secret = strings.TrimSpace(secret); strings.Trim(secret, "*") != "" {
			line = strings.ReplaceAll(line, secret, Mask)
		}
	}
	return line
}
