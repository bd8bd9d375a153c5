package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// fleetContender runs a fleet of a shape, and closes it.
func fleetContender(name string, s shape, run func(context.Context, *fleet) ([]measure, error)) *contender {
	return &contender{name: name, run: func(ctx context.Context, b *benchmark) (m []measure, err error) {
		f, err := b.newFleet(ctx, s)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.close()) }()
		return run(ctx, f)
	}}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// resting is for how long a fleet's rest is measured.
const resting = 10 * time.Second

// scalingRest is what a fleet costs in which nothing happens but heartbeats.
func (b *benchmark) scalingRest() *section {
	s := &section{name: "scaling-rest", title: "what each process costs while nothing changes", rounds: 1, noWarmUp: true}
	for _, x := range []shape{
		{1, 1, 1, 1}, {64, 1, 1, 1}, {64, 1, 8, 1}, {64, 1, 1, 16}, {64, 1, 1, 64},
	} {
		name := fmt.Sprintf("%s, %s, %s", count(x.partitions, "partition"), count(x.invalidators, "invalidator"),
			count(x.readers, "source"))
		s.contenders = append(s.contenders, fleetContender(name, x, rest))
	}
	return s
}

func rest(ctx context.Context, f *fleet) ([]measure, error) {
	db, err := f.b.liveMySQL(ctx)
	if err != nil {
		return nil, err
	}
	var readers []*member
	for i := range f.readers {
		m, err := f.reader(ctx, "shard"+strconv.Itoa(i), db, "now", "2s")
		if err != nil {
			return nil, err
		}
		readers = append(readers, m)
	}
	if err := f.streaming(ctx, readers...); err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil { // what belongs to the start
		return nil, err
	}
	m, err := newMeter(append(pids(f.all...), f.broker())...)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, resting); err != nil {
		return nil, err
	}
	var out []measure
	for _, part := range []struct {
		what string
		pids []int
	}{{"invalidator", pids(f.groups[0]...)}, {"reader", pids(readers...)}, {"broker", []int{f.broker()}}} {
		c, err := m.read(part.pids...)
		if err != nil {
			return nil, err
		}
		out = append(out, measure{name: part.what + ", % of a core", value: c.percent},
			measure{name: part.what + ", MB", value: c.resident})
	}
	return out, nil
}

// scalingCatchUp is what a key costs while a reader catches up, in fleets of several shapes.
func (b *benchmark) scalingCatchUp() *section {
	s := &section{name: "scaling-catch-up", title: "what a key costs while a reader catches up", rounds: 3}
	for _, x := range []shape{
		{1, 1, 1, 1},
		{4, 1, 1, 1},
		{16, 1, 1, 1},
		{64, 1, 1, 1},
		{64, 1, 2, 1},
		{64, 1, 4, 1},
		{64, 1, 8, 1},
		{64, 2, 1, 1},
		{64, 3, 1, 1},
	} {
		name := fmt.Sprintf("%s, %s of %s", count(x.partitions, "partition"), count(x.groups, "group"),
			count(x.invalidators, "invalidator"))
		s.contenders = append(s.contenders, fleetContender(name, x, catchUpFleet))
	}
	return s
}

func catchUpFleet(ctx context.Context, f *fleet) ([]measure, error) {
	if err := f.warm(ctx); err != nil {
		return nil, err
	}
	db, err := f.b.mysql(ctx)
	if err != nil {
		return nil, err
	}
	return f.work(ctx, f.b.workload.changes(), f.b.workload.rows, func() (cpu time.Duration, err error) {
		r, err := f.reader(ctx, "main", db, "earliest", "none", "--until-caught-up")
		if err != nil {
			return 0, err
		}
		<-r.exited
		return r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime(), r.err
	})
}

// scalingLive is what a key costs at a steady rate of small transactions, in fleets of several shapes.
func (b *benchmark) scalingLive() *section {
	p := pace{rate: liveRate, length: time.Duration(5 * float64(time.Second) * min(1, b.scale))}
	title := fmt.Sprintf("what a key costs at %d transactions of one row a second", p.rate)
	s := &section{name: "scaling-live", title: title, rounds: 2}
	for _, x := range []shape{{1, 1, 1, 1}, {4, 1, 1, 1}, {16, 1, 1, 1}, {64, 1, 1, 1}, {64, 1, 4, 1}} {
		name := fmt.Sprintf("%s, %s", count(x.partitions, "partition"), count(x.invalidators, "invalidator"))
		s.contenders = append(s.contenders, fleetContender(name, x, func(ctx context.Context, f *fleet) ([]measure, error) {
			return liveFleet(ctx, f, p)
		}))
	}
	return s
}

func liveFleet(ctx context.Context, f *fleet, p pace) ([]measure, error) {
	if err := f.warm(ctx); err != nil {
		return nil, err
	}
	db, err := f.b.liveMySQL(ctx)
	if err != nil {
		return nil, err
	}
	r, err := f.reader(ctx, "main", db, "now", "2s")
	if err != nil {
		return nil, err
	}
	if err := f.streaming(ctx, r); err != nil {
		return nil, err
	}
	rows := p.transactions()
	return f.work(ctx, rows, rows, func() (time.Duration, error) {
		m, err := newMeter(pids(r)...)
		if err != nil {
			return 0, err
		}
		if _, err := p.load(ctx, db, nil); err != nil {
			return 0, err
		}
		c, err := m.read(pids(r)...)
		return c.cpu, err
	})
}

// work measures what it takes to make changes, so many to so many rows, and to have all groups finish them. do makes
// them, and returns what that took the reader.
func (f *fleet) work(ctx context.Context, changes, rows int, do func() (time.Duration, error)) ([]measure, error) {
	invalidators := pids(slices.Concat(f.groups...)...)
	m, err := newMeter(append(invalidators, f.broker())...)
	if err != nil {
		return nil, err
	}
	before, err := f.stored()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	reader, err := do()
	if err != nil {
		return nil, err
	}
	if err := f.finished(ctx, rows); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	inv, err := m.read(invalidators...)
	if err != nil {
		return nil, err
	}
	broker, err := m.read(f.broker())
	if err != nil {
		return nil, err
	}
	stored, err := f.stored()
	if err != nil {
		return nil, err
	}
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(changes) }
	return []measure{
		{name: "keys/s of each group", value: float64(changes) / took.Seconds()},
		{name: "reader, µs a key", value: each(reader)},
		{name: "broker, µs a key", value: each(broker.cpu)},
		{name: "invalidators, µs a key and group", value: each(inv.cpu) / float64(len(f.groups))},
		{name: "invalidator, MB", value: inv.resident},
		{name: "bytes a key in Kafka", value: float64(stored-before) / float64(changes)},
	}, nil
}
