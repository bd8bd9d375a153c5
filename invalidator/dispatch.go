package invalidator

// kind is why keys are sent, for counting and for who is paced.
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

// hasWork reports whether a job could be filled now.
func (s *partition) hasWork() bool {
	return s.freshReady() || s.finalReady() != nil || s.retryReady()
}

func (s *partition) freshReady() bool {
	return s.fresh.len() > 0 && s.engine.pacer.ready() <= s.now
}

// finalReady returns a queue whose first unit is due; nil if there is none.
func (s *partition) finalReady() *dueQueue {
	for _, q := range s.due {
		if q.units.len() > 0 && !q.units.head().parkable() && s.dueAt(q.units.head()) <= s.now {
			return q
		}
	}
	return nil
}

func (s *partition) retryReady() bool {
	return len(s.retries) > 0 && s.retries[0].trouble.retryAt <= s.now
}

// dispatch fills a job with what is ready and hands it to the writers. It is called with a slot, which it passes
// on with the job or gives back.
func (s *partition) dispatch() {
	j := s.newJob()
	switch final := s.finalReady(); {
	case s.retryReady():
		s.fillRetries(j)
	case final != nil && (s.finalNext || !s.freshReady()):
		s.finalNext = false
		s.fillFinals(j)
	case s.freshReady():
		s.finalNext = true
		s.fillFresh(j)
	}
	if j.size == 0 {
		s.free = append(s.free, j)
		s.engine.node.slots <- struct{}{}
		return
	}
	s.out++
	s.engine.metrics.sent[j.kind].Add(float64(j.size))
	s.engine.node.jobs <- j
}

func (s *partition) newJob() *job {
	var j *job
	if n := len(s.free); n > 0 {
		j = s.free[n-1]
		s.free = s.free[:n-1]
		j.reset()
	} else {
		j = &job{}
	}
	j.ctx, j.done = s.ctx, s.results
	return j
}

// add puts keys of a unit into a job, up to most keys in all, and reports whether the unit is in it wholly.
func (j *job) add(u *unit, most int) bool {
	n := min(u.size-u.next, most-j.size)
	j.parts = append(j.parts, part{u, u.next, u.next + n})
	j.size += n
	u.next += n
	u.out++
	return u.next == u.size
}

func (s *partition) fillFresh(j *job) {
	j.kind = firsts
	most := s.engine.pacer.most()
	for s.fresh.len() > 0 && j.size < most {
		if j.add(s.fresh.head(), most) {
			s.fresh.pop()
		}
	}
	s.engine.pacer.take(s.now, j.size)
}

// fillFinals merges the small units of live traffic into full commands.
func (s *partition) fillFinals(j *job) {
	j.kind = finals
	for q := s.finalReady(); q != nil && j.size < tripKeys; q = s.finalReady() {
		for q.units.len() > 0 && j.size < tripKeys {
			u := q.units.head()
			if u.parkable() || s.dueAt(u) > s.now {
				break
			}
			if j.add(u, tripKeys) {
				q.units.pop()
			}
		}
	}
}

func (s *partition) fillRetries(j *job) {
	j.kind, j.single = retried, true
	for s.retryReady() && j.size < commandKeys {
		if j.add(s.retries[0], commandKeys) {
			s.retries.pop()
		}
	}
}

// settle takes a job back.
func (s *partition) settle(j *job) {
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
				p.unit.failed = append(p.unit.failed, failure{p.from + failed[n].at - at, failed[n].error})
				n++
			}
			failed = failed[n:]
			at += p.to - p.from
			p.unit.answered(j.reply)
			if p.unit.out--; p.unit.out == 0 && p.unit.next == p.unit.size {
				s.judge(p.unit)
			}
		}
	}
	s.free = append(s.free, j)
}
