package leader

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// These tests run the test binary again as a reader in a process of its own, which says on stdout what it does, and
// kill or stop it while it does.
const (
	envHelper  = "FRESHET_LEADER_HELPER_TOPIC"
	envBrokers = "FRESHET_LEADER_HELPER_BROKERS"
)

// help is the process. Whenever it leads it saves one position after the other:
//
//	led TERM
//	saved TERM POSITION
//	lost TERM REASON
func help(topic string) error {
	c, err := broker.New(broker.Options{Brokers: strings.Split(os.Getenv(envBrokers), ",")})
	if err != nil {
		return err
	}
	l, err := New(c, Options{
		Names: broker.Names{Topic: topic}, Source: "shop", Session: 6 * time.Second,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return l.Run(context.Background(), func(ctx context.Context, cp *Checkpoint) error {
		fmt.Println("led", cp.Term())
		if p := cp.Position(); p.IsZero() {
			if err := cp.Begin(place(4)); err != nil {
				return err
			}
		}
		for ctx.Err() == nil {
			pos := cp.Current().Pos + 1
			cp.Advance(event.End{File: "binlog.000001", Pos: pos, State: fmt.Appendf(nil, "state %d", pos/10)})
			if cp.Save() == nil {
				fmt.Println("saved", cp.Term(), pos)
			}
		}
		fmt.Println("lost", cp.Term(), context.Cause(ctx))
		return nil
	})
}

// process is a reader in a process of its own.
type process struct {
	*exec.Cmd
	t   testing.TB
	out *bufio.Scanner
}

func (r *rig) spawn() *process {
	r.t.Helper()
	exe, err := os.Executable()
	must(r.t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envHelper+"="+r.names.Topic, envBrokers+"="+strings.Join(r.cluster.Brokers(), ","))
	cmd.Stderr = r.t.Output()
	out, err := cmd.StdoutPipe()
	must(r.t, err)
	must(r.t, cmd.Start())
	p := &process{Cmd: cmd, t: r.t, out: bufio.NewScanner(out)}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return p
}

// says reads until a line begins with what is given, and returns its numbers.
func (p *process) says(what string) (term, pos uint64) {
	p.t.Helper()
	for p.out.Scan() {
		if strings.HasPrefix(p.out.Text(), what+" ") {
			_, _ = fmt.Sscanf(p.out.Text(), what+" %d %d", &term, &pos)
			return term, pos
		}
	}
	p.t.Fatalf("it ended without saying %q", what)
	return 0, 0
}
