package invalidator

// kind is why keys are sent, for counting and for pacing.
type kind uint8

// The kinds of job.
const (
	firsts  kind = iota // never sent before
	finals              // deleted before, and due again
	retried             // keys in trouble, again in place
	stored              // keys in trouble that had been parked
	kinds               // how many there are
)

func (k kind) String() string {
	return [kinds]string{firsts: "first", finals: "final", retried: "retry", stored: "parked"}[k]
}

// supply is where a partition's next job may come from.
type supply uint8

// The supplies, whose turn it is one after the other. Keys in trouble come before all of them.
const (
	finalDeletes supply = iota
	finalWrites
	freshDeletes
	freshWrites
	pacedFresh
	supplies // how many there are
)

func (s *partitionLoop) freshReady(l *outbox, c class) bool {
	return l.fresh[c].len() > 0 && s.engine.pacer.ready() <= s.now
}

// finalReady returns a queue of the class whose first unit is due; nil if there is none.
func (s *partitionLoop) finalReady(l *outbox, c class) *dueQueue {
	for _, q := range l.due {
		if q.class == c && q.units.len() > 0 && s.mayBeLast(q.units.head()) {
			return q
		}
	}
	return nil
}

// mayBeLast reports whether the action of a unit that waits for its final one would finish it now. One that was split
// by another topology is split again first ([partitionLoop.advanceBoxes]): what comes back of it would not count, again
// and again, as long as others are always before it.
func (s *partitionLoop) mayBeLast(u *unit) bool {
	return !u.parkable() && s.dueAt(u) <= s.now && !(s.topo.several() && s.isOutdated(u))
}

func (s *partitionLoop) retryReady(l *outbox) bool {
	return len(l.retries) > 0 && l.retries[0].trouble.retryAt <= s.now
}

// dispatch fills a job with what is ready and hands it to the writers of the outbox's node. It is called with a slot,
// which it passes on with the job or gives back.
func (s *partitionLoop) dispatch(l *outbox) {
	j := s.newJob(l)
	if s.retryReady(l) {
		s.fillRetries(l, j)
	}
	if s.lane.finalsFirst {
		l.turn = supplies - 1
	}
	for n := supplies; n > 0 && j.size == 0; n-- {
		l.turn = (l.turn + 1) % supplies
		s.fill(l, j, l.turn)
	}
	if j.size == 0 {
		s.free = append(s.free, j)
		l.lane.free()
		return
	}
	s.out++
	s.lane.pacer.take(s.now, j.size)
	s.engine.metrics.sent[j.kind].Add(float64(j.size))
	l.lane.jobs <- j
}

// fill fills an empty job from one supply, if that has anything ready.
func (s *partitionLoop) fill(l *outbox, j *job, from supply) {
	switch from {
	case finalDeletes:
		s.fillFinals(l, j, deletes)
	case freshDeletes:
		s.fillFresh(l, j, deletes)
	case finalWrites:
		s.fillFinals(l, j, writes)
	case freshWrites:
		s.fillFresh(l, j, writes)
	case pacedFresh:
		s.fillPaced(j)
	}
}

func (s *partitionLoop) newJob(l *outbox) *job {
	var j *job
	if n := len(s.free); n > 0 {
		j = s.free[n-1]
		s.free = s.free[:n-1]
		j.reset()
	} else {
		j = &job{}
	}
	j.ctx, j.done, j.lane, j.halved = s.ctx, s.results, l.lane, l.lane.trips.halved.Load()
	j.routed, j.single = s.topo.since, s.topo.several()
	return j
}

// add puts keys of a unit into a job that they fit into, up to most keys in all, and reports whether the unit is in it
// wholly.
func (j *job) add(u *unit, most int) bool {
	j.class = u.class
	n := j.weigh(u, min(u.size-u.next, most-j.size))
	j.parts = append(j.parts, part{unit: u, from: u.next, to: u.next + n, first: u.first, final: u.final})
	j.size += n
	u.next += n
	u.out++
	return u.next == u.size
}

// weigh returns how many of the unit's next n keys it takes to make the job as heavy as a round trip should be.
func (j *job) weigh(u *unit, n int) int {
	b := u.entry.batch
	if all := len(b.Text()); u.class == deletes && j.bytes+all < j.lane.bytes>>j.halved {
		j.bytes += all // more than they are, which is no loss: keys are short
		return n
	}
	for i := range n {
		at := u.ordinal(u.next + i)
		if j.bytes += len(b.Key(at)) + len(b.Fields(at)); j.heavy() {
			return i + 1
		}
	}
	return n
}

func (s *partitionLoop) fillFresh(l *outbox, j *job, c class) {
	if !s.freshReady(l, c) {
		return
	}
	j.kind = firsts
	most := min(s.engine.pacer.most(), j.most(c))
	for q := &l.fresh[c]; q.len() > 0 && j.size < most && j.fits(c); {
		if j.add(q.head(), most) {
			q.pop()
		}
	}
	s.engine.pacer.take(s.now, j.size)
}

// fillFinals merges the small units of live traffic into full commands.
func (s *partitionLoop) fillFinals(l *outbox, j *job, c class) {
	j.kind = finals
	for q := s.finalReady(l, c); q != nil && j.fits(c); q = s.finalReady(l, c) {
		for q.units.len() > 0 && j.fits(c) {
			u := q.units.head()
			if !s.mayBeLast(u) {
				break
			}
			s.rouse(u)
			if j.add(u, j.most(c)) {
				q.units.pop()
			}
		}
	}
}

func (s *partitionLoop) fillRetries(l *outbox, j *job) {
	j.kind, j.single = retried, true
	most := min(commandKeys, s.lane.keys) >> j.halved
	for s.retryReady(l) && j.size < most && j.fits(l.retries[0].class) && l.retries[0].class != queries {
		if j.add(l.retries[0], most) {
			l.retries.pop()
		}
	}
}

// settle takes a job back.
func (s *partitionLoop) settle(j *job) {
	s.out--
	m := s.engine.metrics
	m.found.Add(float64(j.found))
	if j.err != nil {
		s.fail(j.err)
	}
	if j.err == nil && !j.givenUp {
		m.acknowledged(j.kind, j.size-len(j.failed))
		at, failed := 0, j.failed
		for _, p := range j.parts {
			n := 0
			for n < len(failed) && failed[n].at < at+p.to-p.from {
				f := failed[n]
				f.at += p.from - at
				p.unit.failed = append(p.unit.failed, f)
				n++
			}
			failed = failed[n:]
			at += p.to - p.from
			p.unit.answered(j.reply, j.slowest)
			if !p.final {
				p.unit.first = p.unit.first.and(p.first)
			}
			if p.unit.out--; p.unit.out == 0 && p.unit.next == p.unit.size {
				s.judge(p.unit)
			}
		}
	}
	s.free = append(s.free, j)
}
