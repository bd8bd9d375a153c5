package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/freshet/freshet/testbed"
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
				m = append(m, measure{name: name, value: 100 * (after - before[i]).Seconds() / time.Since(begin).Seconds(), goal: "≤ 1"})
			}
			return nil
		})
	})
	return m, err
}

// cpuOf returns what a process has used until now.
// Source: proc_pid_stat(5): utime and stime are the 14th and 15th field, in ticks of which Linux has 100 a second; the
// second one, the name, stands in parentheses and may hold anything.
func cpuOf(pid int) (time.Duration, error) {
	const tick = 10 * time.Millisecond
	file := filepath.Join("/proc", strconv.Itoa(pid), "stat")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s says %q", file, text)
	}
	user, err1 := strconv.Atoi(string(fields[11]))
	system, err2 := strconv.Atoi(string(fields[12]))
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%s says %q", file, text)
	}
	return time.Duration(user+system) * tick, nil
}
