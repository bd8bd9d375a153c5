package invalidator

// turn says which of the runs that wait come first.
type turn uint8

// The turns. A live run serves a change; of what is served gently the final actions come first, as on its [lane].
const (
	liveTurn turn = iota
	gentleFinals
	gentleFirsts
	queryTurns              // how many there are
	noTurn     = queryTurns // it does not wait
)

// turn returns the turn of a key.
func (w waiter) turn() turn {
	switch {
	case !w.partition.gentle:
		return liveTurn
	case w.unit.final:
		return gentleFinals
	}
	return gentleFirsts
}

// liveRuns is how many live runs begin in a row, at most, while a gentle one could. So where changes need more queries
// than can be run, a walk goes on all the same, and takes little from them.
const liveRuns = 15

// queryLine is where runs wait for a worker, live and gentle ones apart: a walk may have thousands in line, and a
// change must not wait for these. Gentle ones keep the pace of the gentle lane, and half of the workers are left to
// live ones. The pool's lock protects it.
type queryLine struct {
	runs [queryTurns]fifo[inLine]
	// pacer paces gentle runs, and at most so many of them are under way; gentle is how many are.
	pacer        *pacer
	most, gentle int
	// passed is how many live runs have begun since a gentle one could have.
	passed int
}

// inLine is the place of a run in a line. A run that is put into another line leaves its place in the first one: how
// often the run had been put into a line tells the two apart.
type inLine struct {
	run   *queryRun
	stood int
}

// put has a run wait for its turn.
func (l *queryLine) put(r *queryRun, t turn) {
	r.turn = t
	r.stood++
	l.runs[t].push(inLine{r, r.stood})
}

// take takes the run whose turn it is, of those that are in all. nil: there is none, and one that is paced will be
// ready then, if not never.
func (l *queryLine) take(now instant, all map[runKey]*queryRun) (r *queryRun, ready instant) {
	live, of := l.waits(liveTurn, all), gentleFinals
	if !l.waits(of, all) {
		of = gentleFirsts
	}
	gentle := l.waits(of, all) && l.gentle < l.most
	if gentle {
		ready = l.pacer.ready()
	}
	switch paced := gentle && ready > now; {
	case live && (!gentle || paced || l.passed < liveRuns):
		if gentle && !paced {
			l.passed++
		}
		of = liveTurn
	case paced:
		return nil, ready
	case gentle:
		l.passed = 0
		l.gentle++
		l.pacer.take(now, 1)
	default:
		return nil, never
	}
	return l.pop(of), never
}

// pop takes out of a line the run that waits there.
func (l *queryLine) pop(t turn) *queryRun {
	r := l.runs[t].pop().run
	r.turn, r.gentle = noTurn, t != liveTurn
	return r
}

// waits reports whether a run waits in a line. It drops what no key waits for any more.
func (l *queryLine) waits(t turn, all map[runKey]*queryRun) bool {
	for q := &l.runs[t]; q.len() > 0; q.pop() {
		switch p := q.head(); {
		case p.stood != p.run.stood: // it has gone to another line
		case len(p.run.waiting) == 0: // withdrawn
			delete(all, p.run.key)
		default:
			return true
		}
	}
	return false
}

// isEmpty reports whether nothing stands in any line.
func (l *queryLine) isEmpty() bool {
	for t := range l.runs {
		if l.runs[t].len() > 0 {
			return false
		}
	}
	return true
}

// ended takes note that a run is not under way any more.
func (l *queryLine) ended(r *queryRun) {
	if r.gentle {
		l.gentle--
		r.gentle = false
	}
}
