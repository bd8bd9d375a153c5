package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
)

// memorySection measures the most memory that freshet ever has resident, in one process and with the default
// configuration but for the second delete.
func (b *benchmark) memorySection() *section {
	big := memoryRun{source: b.bigMySQL, secondDelete: "10s", keys: `["product:{id}"]`}
	pending := memoryRun{source: b.mysql, secondDelete: "10s", keys: `["product:{id}"]`}
	// Two keys of each row, of which one has nothing in common with any other, fill the queues to max_memory.
	away := memoryRun{
		source: b.bigMySQL, secondDelete: "20s", keys: `["product:{id}", "page:{name|sha1}"]`,
		away: 10 * time.Second,
	}
	return &section{
		name:  "memory",
		title: "the most memory that is resident, in MB (VmHWM)",
		contenders: []*contender{
			memoryRun{
				source: b.mysql, secondDelete: "none",
				keys: `["product:{id}"]`,
			}.contender("catching up, second_delete none", ""),
			big.contender(fmt.Sprintf("a transaction of %d row changes", b.bigRows()), "≤ 100"),
			pending.contender(fmt.Sprintf("%d pending final deletes", b.workload.changes()), "≤ 150"),
			away.contender("Redis away, queues full", "≤ 100"),
		},
		rounds: 2, noWarmUp: true, // they differ by a few per cent
	}
}

// memoryRun is a backlog that freshet reads until it has caught up.
type memoryRun struct {
	source       func(context.Context) (*testbed.Server, error)
	secondDelete string
	keys         string
	// away is for how long Redis hangs while all queues are full. 0: not at all.
	away time.Duration
}

// bigRows is how many row changes the big transaction makes: all rows several times over, since a server keeps what it
// takes to undo each.
func (b *benchmark) bigRows() int { return bigPasses * b.workload.rows }

const bigPasses = 10

// bigMySQL returns the MySQL server whose binlog holds a very large transaction, after the inserts of its rows.
func (b *benchmark) bigMySQL(ctx context.Context) (*testbed.Server, error) {
	return b.ownSource(ctx, "a transaction of millions of rows on MySQL", func(ctx context.Context, db *sql.DB) error {
		if err := (workload{rows: b.workload.rows}).load(ctx, db); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for range bigPasses {
			if _, err := tx.ExecContext(ctx, "UPDATE shop.product SET stock = stock + 1"); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		return tx.Commit()
	})
}

func (m memoryRun) contender(name, goal string) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		source, err := m.source(ctx)
		if err != nil {
			return nil, err
		}
		if err := b.populate(ctx); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		listen, err := freeAddress()
		if err != nil {
			return nil, err
		}
		cmd, err := b.command(ctx, setting{
			source: source, start: "earliest", secondDelete: m.secondDelete, mappings: "  - table: shop.product\n    keys: " +
				m.keys + "\n",
		}, "--until-caught-up")
		if err != nil {
			return nil, err
		}
		cmd.Env = append(os.Environ(), "FRESHET_ADMIN_LISTEN="+listen)
		peak, err := m.run(ctx, b, cmd, listen)
		if err != nil {
			return nil, err
		}
		return []measure{{name: "resident MB", value: peak, goal: goal}}, b.allGone(ctx)
	}}
}

// run runs freshet to its end, while another goroutine hangs Redis, and returns the most memory that it had resident.
func (m memoryRun) run(ctx context.Context, b *benchmark, cmd *exec.Cmd, listen string) (peak float64, err error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ctx, ended := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error {
		peak = peakMemory(ctx, cmd.Process.Pid)
		return nil
	})
	if m.away > 0 {
		g.Go(func() error { return m.hang(ctx, b, listen) })
	}
	err = cmd.Wait()
	ended()
	if err := errors.Join(err, g.Wait()); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, &out)
	}
	return peak, nil
}

// hang waits until nothing is read any more because a cap is reached, and stops Redis for a while.
func (m memoryRun) hang(ctx context.Context, b *benchmark, listen string) error {
	if err := awaitPaused(ctx, listen); err != nil {
		return err
	}
	if err := b.redis.Pause(); err != nil {
		return err
	}
	err := pause(ctx, m.away)
	return errors.Join(err, b.redis.Resume())
}

// awaitPaused waits until keys wait, and nothing has changed for a while.
func awaitPaused(ctx context.Context, listen string) error {
	const still = time.Second
	var last progress
	for since := time.Now(); last.Pending+last.InFlight == 0 || time.Since(since) < still; {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%w: the queues were never full", errInvalid)
		}
		if now, err := statusOf(ctx, listen); err == nil && now != last { // before it listens there is none
			last, since = now, time.Now()
		}
	}
	return nil
}

// progress is what a running freshet says of its work.
type progress struct {
	Keys     uint64 `json:"keys"`
	InFlight int64  `json:"in_flight"`
	Pending  int64  `json:"pending"`
}

func statusOf(ctx context.Context, listen string) (p progress, err error) {
	raw, err := admin.NewClient("http://"+listen, "", nil).Status(ctx)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(raw, &p)
}

// freeAddress returns a loopback address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

var highWater = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)

// peakMemory returns the most memory that a process had resident, in MB, as Linux says until the process or ctx ends: 0
// on any other system.
func peakMemory(ctx context.Context, pid int) float64 {
	peak := 0.0
	for {
		if m := highWater.FindStringSubmatch(readText(fmt.Sprintf("/proc/%d/status", pid))); m != nil {
			kB, _ := strconv.ParseFloat(m[1], 64)
			peak = kB * 1024 / 1e6
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return peak
		}
	}
}
