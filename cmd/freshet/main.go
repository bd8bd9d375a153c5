// Command freshet keeps Redis caches fresh: it reads the MySQL or MariaDB binlog, turns every committed row change
// into the Redis keys that it makes stale, and deletes those keys.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 the position in the binlog is lost, or records that
// Kafka should hold, 4 what --wait waited for was dismissed before it was answered. A supervisor must not restart
// freshet after 2 and 3: somebody has to act first.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/retry"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitGap    = 3
	exitEnded  = 4
)

func main() { os.Exit(Main()) }

// Main runs the command line and returns the exit code.
func Main() int {
	defer runtime.KeepAlive(saveMemory())
	// go-redis would write lines of its own to stderr, between ours; all that it could tell comes back as an error.
	redis.SetLogger(&logging.VoidLogger{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitFailed) // a second signal does not wait for the work in flight
	}()
	return execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintln(stderr, err)
	}
	return exitCode(err)
}

// errSilent marks a failure whose reason has been printed already.
var errSilent = errors.New("failed")

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	var problems spec.Problems
	switch {
	case errors.As(err, &usage), errors.As(err, &problems):
		return exitUsage
	case errors.Is(err, retry.ErrHalt):
		return exitGap
	case errors.Is(err, errDismissed), errors.Is(err, errCancelled):
		return exitEnded
	}
	return exitFailed
}
