package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// section is one part of the table: its contenders run in turn, round by round.
type section struct {
	name  string // short, for -only
	title string
	// setup runs once, before the rounds. Nil: there is nothing to set up.
	setup      func(ctx context.Context, b *benchmark) error
	contenders []*contender
	// rounds is how often each contender runs, where fewer are enough than -rounds says. 0: as it says.
	rounds int
	// noWarmUp leaves out the round that is not counted, where a run warms up by itself or takes long.
	noWarmUp bool
}

// contender is one way of doing what a section measures.
type contender struct {
	name string
	// run does it once. An error that wraps errInvalid says that the outcome was wrong: the run is not counted, and the
	// command fails in the end. Any other error ends the section.
	run func(ctx context.Context, b *benchmark) ([]measure, error)
}

// measure is one figure of a run.
type measure struct {
	name  string // with its unit: rows/s, p50 ms, resident MB
	value float64
	// of is the contender whose measure of the same name it is divided by, round by round. Empty: none. A measure that
	// is divided by several contenders is there once for each.
	of string
	// goal is "≥ 0.9" or "≤ 100": of the median ratio if of is set, else of the median value. Empty: none.
	goal string
}

// errInvalid says that a run did not do what it must.
var errInvalid = errors.New("INVALID")

// sample is what one run of a contender said in a round.
type sample struct {
	contender string
	round     int
	measures  []measure
}

// result holds the counted runs of a section.
type result struct {
	section *section
	samples []sample
	servers []string // those that it took, with their versions
	failed  bool     // or invalid: not for the document
	took    time.Duration
}

// sectionWithin is how long a section may take: one that hangs must not keep the others from running.
const sectionWithin = 30 * time.Minute

// runSection runs a section. The result holds what there is, also if it failed.
func (b *benchmark) runSection(ctx context.Context, s *section) (*result, error) {
	fmt.Printf("\n%s: %s\n", s.name, s.title)
	b.taken = nil
	r, begin := &result{section: s}, time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, sectionWithin, fmt.Errorf("it took more than %s", sectionWithin))
	defer cancel()
	err := errors.Join(b.runRounds(ctx, r), b.endSection())
	r.servers, r.failed, r.took = b.taken, err != nil, time.Since(begin).Round(time.Second)
	fmt.Printf("  took %s\n", r.took)
	return r, err
}

func (b *benchmark) runRounds(ctx context.Context, r *result) error {
	s := r.section
	if s.setup != nil {
		if err := s.setup(ctx, b); err != nil {
			return err
		}
	}
	rounds, first := b.rounds, 0
	if s.rounds > 0 {
		rounds = min(rounds, s.rounds)
	}
	if s.noWarmUp {
		first = 1
	}
	var invalid []error
	for round := first; round <= rounds; round++ {
		for _, c := range s.contenders {
			m, err := c.run(ctx, b)
			err = named(err, c, round)
			fmt.Printf("  round %d  %-36s %s\n", round, c.name, runText(m, err))
			switch {
			case errors.Is(err, errInvalid):
				invalid = append(invalid, err)
			case err != nil:
				return errors.Join(append(invalid, err)...)
			case round > 0:
				r.samples = append(r.samples, sample{c.name, round, m})
			}
		}
	}
	return errors.Join(invalid...)
}

func named(err error, c *contender, round int) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, round %d: %w", c.name, round, err)
}

// runText is what a run said, in one line.
func runText(measures []measure, err error) string {
	var parts []string
	for _, m := range measures {
		part := number(m.value) + " " + m.name
		if !slices.Contains(parts, part) { // or it is there for another ratio
			parts = append(parts, part)
		}
	}
	if err != nil {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, ", ")
}
