package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// usage is what a process has used up to a moment. This needs Linux.
type usage struct {
	at       time.Time
	cpu      time.Duration // user and system
	resident float64       // MB
}

func usageOf(pid int) (u usage, err error) {
	u.at = time.Now()
	if u.cpu, err = cpuOf(pid); err != nil {
		return u, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	_, rss, _ := strings.Cut(string(text), "VmRSS:")
	var kib float64
	_, err = fmt.Sscan(rss, &kib)
	u.resident = kib * 1024 / 1e6
	return u, err
}

// meter tells what processes use from its making on.
type meter map[int]usage

func newMeter(pids ...int) (meter, error) {
	m := meter{}
	for _, pid := range pids {
		u, err := usageOf(pid)
		if err != nil {
			return nil, err
		}
		m[pid] = u
	}
	return m, nil
}

// cost is what processes have used in a time: all together, and each of them on average.
type cost struct {
	cpu      time.Duration // all
	percent  float64       // each, of a core
	resident float64       // each, MB
}

// read returns the cost of some of the processes.
func (m meter) read(pids ...int) (c cost, err error) {
	n := float64(len(pids))
	for _, pid := range pids {
		u, err := usageOf(pid)
		if err != nil {
			return c, err
		}
		cpu := u.cpu - m[pid].cpu
		c.cpu += cpu
		c.percent += 100 * cpu.Seconds() / u.at.Sub(m[pid].at).Seconds() / n
		c.resident += u.resident / n
	}
	return c, nil
}
