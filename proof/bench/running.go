package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// programs returns the processes that a contender consists of, not yet started.
type programs func(ctx context.Context, b *benchmark) ([]*exec.Cmd, error)

// together is freshet run: both halves in one process. Without a source it follows the live one.
func together(s setting) programs {
	return func(ctx context.Context, b *benchmark) ([]*exec.Cmd, error) {
		if s.source == nil {
			source, err := b.liveMySQL(ctx)
			if err != nil {
				return nil, err
			}
			s.source = source
		}
		cmd, err := b.command(ctx, s)
		return []*exec.Cmd{cmd}, err
	}
}

// apart is freshet reader and freshet invalidator, with one configuration.
func apart(s setting) programs {
	return func(ctx context.Context, b *benchmark) ([]*exec.Cmd, error) {
		run, err := together(s)(ctx, b)
		if err != nil {
			return nil, err
		}
		var both []*exec.Cmd
		for _, half := range []string{"reader", "invalidator"} {
			args := append([]string{half}, run[0].Args[2:]...)
			both = append(both, exec.CommandContext(ctx, run[0].Path, args...))
		}
		return both, nil
	}
}

// live is the bare reader, following the live source.
func live(ctx context.Context, b *benchmark) ([]*exec.Cmd, error) {
	source, err := b.liveMySQL(ctx)
	if err != nil {
		return nil, err
	}
	return b.bareReader(ctx, source)
}

// while runs processes for as long as f takes. The context that f is given ends when one of them does.
func (b *benchmark) while(ctx context.Context, p programs, f func(ctx context.Context, pids []int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var exits sync.WaitGroup
	defer exits.Wait()
	defer cancel(nil)
	all, err := p(ctx, b)
	if err != nil {
		return err
	}
	var pids []int
	for _, cmd := range all {
		var stderr strings.Builder
		cmd.Stderr = &stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = goneWithin
		if err := cmd.Start(); err != nil {
			return err
		}
		pids = append(pids, cmd.Process.Pid)
		exits.Go(func() {
			err := cmd.Wait()
			cancel(fmt.Errorf("%s stopped: %w\n%s", cmd, err, &stderr))
		})
	}
	if err := f(ctx, pids); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}
