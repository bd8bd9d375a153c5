package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// readyTimeout bounds how long a server may take until it answers.
	readyTimeout = 3 * time.Minute
	// stopTimeout bounds a graceful stop; after it the process is killed.
	stopTimeout = 2 * time.Minute
	// logTailBytes is how much of a server's log is shown when something failed.
	logTailBytes = 4 << 10
)

// errNotOurs is returned for process faults on a server which the user gave by address.
var errNotOurs = errors.New("testbed: this server was given by address: it cannot be started or stopped from here")

// Process is one server program with a fixed command line. It can be stopped, killed, paused
// and started again any number of times.
type Process struct {
	name    string
	argv    []string
	dir     string                      // working directory
	logPath string                      // stdout and stderr, appended over all starts
	ready   func(context.Context) error // nil when the server answers

	lifecycle sync.Mutex // one Start, Stop or Kill at a time

	mu  sync.Mutex // guards run
	run *run
}

// run is one life of a process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been waited for
	err  error         // how it ended; read after done
}

// startRun starts a command and returns when its process exists or could not be started. The
// goroutine which forks keeps its thread until the process has ended: Linux sends the parent
// death signal when the forking thread ends, not the whole process.
func startRun(cmd *exec.Cmd) (*run, error) {
	cmd.SysProcAttr = sysProcAttr()
	r := &run{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(r.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			r.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-r.done
		return nil, err
	}
	return r, nil
}

// launch starts the process, with more arguments, and its output going to the log.
func (p *Process) launch(more ...string) (*run, error) {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("testbed: %s: %w", p.name, err)
	}
	defer log.Close() // the process has its own descriptor
	cmd := exec.Command(p.argv[0], append(p.argv[1:len(p.argv):len(p.argv)], more...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	r, err := startRun(cmd)
	if err != nil {
		return nil, fmt.Errorf("testbed: start %s: %w", p.name, err)
	}
	return r, nil
}

// Start starts the process, again if it ran before, and returns when the server answers. A
// running process is left as it is.
func (p *Process) Start(ctx context.Context) error { return p.StartWith(ctx) }

// StartWith is Start with more arguments, which count until the process ends.
func (p *Process) StartWith(ctx context.Context, more ...string) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if p.argv == nil {
		return errNotOurs
	}
	if p.current() != nil {
		return nil
	}
	r, err := p.launch(more...)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	if err := p.awaitReady(ctx, r); err != nil {
		tail := p.LogTail()
		_ = r.cmd.Process.Kill()
		<-r.done
		return fmt.Errorf("testbed: %s did not come up: %w\n%s", p.name, err, tail)
	}
	return nil
}

// awaitReady asks the server until it answers, it exits, or the time is over.
func (p *Process) awaitReady(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("it exited: %v", r.err)
		case <-ctx.Done():
			return fmt.Errorf("%w; last error: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// current returns the running life of the process, or nil.
func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil
	}
	select {
	case <-p.run.done:
		return nil
	default:
		return p.run
	}
}

// Stop asks the process to end (SIGTERM) and returns when it has. It is an error if it had to
// be killed after two minutes. A stopped process stays stopped.
func (p *Process) Stop() error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if p.argv == nil {
		return errNotOurs
	}
	r := p.current()
	if r == nil {
		return nil
	}
	_ = r.cmd.Process.Signal(syscall.SIGCONT) // a paused process would not see the request
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("testbed: stop %s: %w", p.name, err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-r.done:
		return nil
	case <-timeout.C:
	}
	_ = r.cmd.Process.Kill()
	<-r.done
	return fmt.Errorf("testbed: %s did not stop within %s and was killed", p.name, stopTimeout)
}

// Kill ends the process at once (SIGKILL) and returns when it is gone.
func (p *Process) Kill() error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if p.argv == nil {
		return errNotOurs
	}
	r := p.current()
	if r == nil {
		return nil
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("testbed: kill %s: %w", p.name, err)
	}
	<-r.done
	return nil
}

// Pause freezes the process (SIGSTOP): its connections stay open and nothing answers.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig syscall.Signal) error {
	if p.argv == nil {
		return errNotOurs
	}
	r := p.current()
	if r == nil {
		return fmt.Errorf("testbed: %s is not running", p.name)
	}
	if err := r.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("testbed: %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// Pid returns the process id, or 0 when the process does not run.
func (p *Process) Pid() int {
	if r := p.current(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// LogTail returns the last lines of the process's output, over all its lives.
func (p *Process) LogTail() string {
	f, err := os.Open(p.logPath)
	if err != nil {
		return ""
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-logTailBytes), io.SeekStart)
	}
	tail, _ := io.ReadAll(f)
	if len(tail) == logTailBytes {
		_, tail, _ = bytes.Cut(tail, []byte("\n"))
	}
	return string(bytes.TrimSpace(tail))
}
