package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet/freshet/proof/testbed"
)

// restSection measures what freshet costs while nothing changes: heartbeats and their questions, and with Kafka what it
// takes to stay a member of its groups.
func (b *benchmark) restSection() *section {
	length := max(2*time.Second, time.Duration(20*float64(time.Second)*min(1, b.scale)))
	kafka := setting{log: throughKafka, secondDelete: "2s"}
	atRest := func(name string, run programs) *contender {
		return &contender{name: name, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
			return b.rest(ctx, run, length)
		}}
	}
	return &section{
		name:  "rest",
		title: fmt.Sprintf("CPU of each process while nothing changes, over %s", length),
		contenders: []*contender{
			atRest("embedded", together(setting{secondDelete: "2s"})),
			atRest("Kafka, one process", together(kafka)),
			atRest("Kafka, reader and invalidator", apart(kafka)),
		},
		rounds: 3, noWarmUp: true,
	}
}

// settle is how long what belongs to the start takes at most: the last second delete among it.
const settle = 5 * time.Second

func (b *benchmark) rest(ctx context.Context, run programs, length time.Duration) (m []measure, err error) {
	err = b.watched(ctx, func(source *testbed.Server, w *watch) error {
		return b.while(ctx, run, func(ctx context.Context, pids []int) error {
			if err := awaitFirst(ctx, source, w); err != nil {
				return err
			}
			if err := pause(ctx, settle); err != nil {
				return err
			}
			begin, before := time.Now(), make([]time.Duration, len(pids))
			for i, pid := range pids {
				if before[i], err = cpuOf(pid); err != nil {
					return err
				}
			}
			if err := pause(ctx, length); err != nil {
				return err
			}
			for i, pid := range pids {
				after, err := cpuOf(pid)
				if err != nil {
					return err
				}
				name := "% of a core"
				if len(pids) > 1 {
					name = fmt.Sprintf("%% of a core, process %d", i+1)
				}
				m = append(m, measure{
					name: name, value: 100 * (after - before[i]).Seconds() / time.Since(begin).Seconds(),
					goal: "≤ 1",
				})
			}
			return nil
		})
	})
	return m, err
}

// cpuOf returns what a process has used until now, to the nanosecond; threads that have ended are included. It needs
// Linux. The clock is that of clock_getcpuclockid(3); that CPUCLOCK_SCHED is 2 is from the kernel's
// include/linux/posix-timers_types.h.
func cpuOf(pid int) (time.Duration, error) {
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &used); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}
