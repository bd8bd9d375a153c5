package testbed

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// init keeps from what is started the GOGC that the Makefile has for the tests: programs are to run as users run them.
func init() {
	_ = os.Unsetenv("GOGC")
}

// Program says how to run a program under test.
type Program struct {
	Path   string   // the program; default: Binary(t)
	Args   []string // its arguments
	Config string   // if not empty, written to a file whose path is added as --config
	Env    []string // KEY=value, added to this process's environment
	Dir    string   // working directory; default: one of the test's own
}

// Running is a program under test. It ends with the test.
type Running struct {
	run    *run
	stdout output
	stderr output
}

// Start runs the program. It is killed at the end of the test, if it has not ended before; if
// the test failed, the end of what it wrote is shown.
func (p Program) Start(t testing.TB) *Running {
	t.Helper()
	if p.Path == "" {
		p.Path = Binary(t)
	}
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	args := p.Args
	if p.Config != "" {
		path := filepath.Join(t.TempDir(), "freshet.yaml")
		Must(t, os.WriteFile(path, []byte(p.Config), 0o600))
		args = append(args[:len(args):len(args)], "--config", path)
	}
	r := &Running{}
	cmd := exec.Command(p.Path, args...)
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = &r.stdout, &r.stderr
	cmd.WaitDelay = 5 * time.Second // for a pipe that a grandchild keeps open
	var err error
	if r.run, err = startRun(cmd); err != nil {
		t.Fatalf("testbed: start %s: %v", p.Path, err)
	}
	t.Cleanup(func() {
		r.Kill9()
		if t.Failed() {
			t.Logf("%s %s\nstdout:\n%s\nstderr:\n%s", filepath.Base(p.Path), strings.Join(args, " "),
				lastBytes([]byte(r.Stdout()), logTailBytes), lastBytes([]byte(r.Stderr()), logTailBytes))
		}
	})
	return r
}

// Pid returns the process id.
func (r *Running) Pid() int { return r.run.cmd.Process.Pid }

// Stdout returns what the program has written to standard output so far.
func (r *Running) Stdout() string { return r.stdout.String() }

// Stderr returns what the program has written to standard error so far.
func (r *Running) Stderr() string { return r.stderr.String() }

// Done is closed when the program has ended.
func (r *Running) Done() <-chan struct{} { return r.run.done }

// Signal sends a signal to the program. One that has ended is left in peace.
func (r *Running) Signal(sig os.Signal) { _ = r.run.cmd.Process.Signal(sig) }

// Kill9 ends the program with SIGKILL and returns when it is gone.
func (r *Running) Kill9() {
	r.Signal(syscall.SIGKILL)
	<-r.run.done
}

// Wait returns the program's exit code, -1 if a signal ended it. It fails the test if the
// program has not ended after d.
func (r *Running) Wait(t testing.TB, d time.Duration) int {
	t.Helper()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-r.run.done:
		return r.run.cmd.ProcessState.ExitCode()
	case <-timeout.C:
		t.Fatalf("pid %d has not ended within %s", r.Pid(), d)
		return 0
	}
}

// Stop asks the program to end with SIGTERM and returns its exit code; see Wait.
func (r *Running) Stop(t testing.TB, d time.Duration) int {
	t.Helper()
	r.Signal(syscall.SIGTERM)
	return r.Wait(t, d)
}

// WaitOutput returns when the program has written text to standard output or standard error.
// It fails the test if the program ends without it, or after d.
func (r *Running) WaitOutput(t testing.TB, d time.Duration, text string) {
	t.Helper()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	ended := r.run.done
	for {
		out, errs := r.stdout.changed(), r.stderr.changed()
		if strings.Contains(r.Stdout(), text) || strings.Contains(r.Stderr(), text) {
			return
		}
		if ended == nil {
			t.Fatalf("the program ended without writing %q", text)
		}
		select {
		case <-out:
		case <-errs:
		case <-ended:
			ended = nil // look once more: all that it wrote is there now
		case <-timeout.C:
			t.Fatalf("not written within %s: %q", d, text)
		}
	}
}

// output collects what a program writes.
type output struct {
	mu   sync.Mutex // guards what follows
	buf  bytes.Buffer
	news chan struct{} // closed at the next write; nil if nobody waits
}

// Write implements io.Writer for os/exec, whose goroutine the process's owner waits for.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.news != nil {
		close(o.news)
		o.news = nil
	}
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// changed returns a channel that is closed by the next write.
func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.news == nil {
		o.news = make(chan struct{})
	}
	return o.news
}
