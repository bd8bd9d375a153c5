package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/retry"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

// TestTheCommandLine runs the scripts in testdata/script: what is said, where it is said and the exit code, of all
// that needs no server.
func TestTheCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			// Nothing listens on the port: it was free a moment ago, and it is only ever connected to.
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			env.Vars = append(env.Vars, quickExit())
			env.Setenv("NOBODY", l.Addr().String())
			return l.Close()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"store": makeStore,
			"hold":  holdStore,
		},
	})
}

// exits CODE PROGRAM ARG ... runs a program that is to end with this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG ...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		code, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = code.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// store DIR N makes a store with a position and N dead letters, of shop.product and shop.user in turn.
func makeStore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: store DIR N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	s, err := embedded.Open(ts.MkAbs(args[0]), embedded.Options{})
	ts.Check(err)
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	gtids, err := event.ParseGTIDSet(event.MariaDB, "0-2-57")
	ts.Check(err)
	ts.Check(s.Checkpoint().Begin(event.Position{
		Flavor: event.MariaDB, Server: "2", Epoch: 3, File: "binlog.000112", Pos: 4096, GTIDs: gtids, Committed: at,
	}))
	entries := make([]retry.Entry, n)
	for i := range entries {
		entries[i] = retry.Entry{
			Key: fmt.Sprintf("product:%d", i+1), Action: event.ActionDelete, Source: "default",
			Table:   []string{"shop.product", "shop.user"}[i%2],
			Version: event.Version{Epoch: 3, File: 112, Pos: 4000, Row: uint32(i + 1)},
			D:       time.Second, Error: "NOPERM this user has no permissions", Attempts: 8, First: at, Last: at.Add(time.Hour),
		}
	}
	ts.Check(s.Park(context.Background(), entries))
	ts.Check(s.Close())
}

// hold DIR keeps a store open until the end of the script, as a running freshet does.
func holdStore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold DIR")
	}
	s, err := embedded.Open(ts.MkAbs(args[0]), embedded.Options{})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Close()) })
}
