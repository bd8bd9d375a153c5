package invalidator

// lane is a way to Redis: how many round trips are under way on it, and how large they are. There are two. What the log
// hands out goes down the live lane, in a few large round trips at a time: freshness is what counts. What belongs to an
// answer or a warm-up goes down the gentle one, where readers of Redis count.
//
// Redis does one thing at a time, and takes what a connection has sent by 16 KiB, which are some 40 calls of the guard,
// or 1 ms. For so long a reader waits, and as often as there are round trips under way. So on the gentle lane there is
// one at a time, and it takes Redis some 0.2 ms; between two of them Redis serves its other clients.
//
// A pace at which work begins is not enough. A late mark, or the end of a silence of Redis, has the final actions of
// seconds fall due at once. So work is paced here, when it is sent, for the first time or again.
type lane struct {
	// keys, calls and bytes are what a round trip holds at most: so many keys to be deleted, or so many calls and bytes,
	// but for an item of more.
	keys, calls, bytes int
	// ahead is how many keys a partition fetches before they are dealt with once; 0: as many as there is room for.
	ahead int64
	// finalsFirst: the final actions that are due come before first ones, so that no pace of the first ones keeps them
	// from ever being in time again.
	finalsFirst bool
	pacer       *pacer
	writers     int
	// slots are how many more jobs it takes; who has one may put a job into jobs, which then does not block.
	slots chan struct{}
	jobs  chan *job
	trips trips
	// freed, where there are several nodes, is called after a slot was given back.
	freed func()
}

// liveLane returns a lane for what the log hands out.
func liveLane() *lane {
	return &lane{keys: tripKeys, calls: tripCalls, bytes: tripBytes, pacer: &pacer{}, writers: tripsInFlight}
}

// gentleLane returns a lane for what belongs to an answer or a warm-up. At a low pace its round trips have fewer calls,
// so that they are spread over the time: a reader waits for one of them at most.
func gentleLane(p *pacer) *lane {
	calls := gentleCalls
	if p.rate > 0 {
		calls = min(max(p.rate/gentleTrips, 1), gentleCalls)
	}
	return &lane{
		keys: gentleKeys, calls: calls, bytes: gentleBytes, pacer: p, writers: 1,
		ahead: gentleAhead, finalsFirst: true,
	}
}

// free gives a slot back.
func (l *lane) free() {
	l.slots <- struct{}{}
	if l.freed != nil {
		l.freed()
	}
}

// open makes the lane ready for jobs: for as many as it has writers, and some to spare.
func (l *lane) open(spare int) *lane {
	slots := l.writers + spare
	l.slots, l.jobs = make(chan struct{}, slots), make(chan *job, slots)
	for range slots {
		l.slots <- struct{}{}
	}
	return l
}

// most returns how many keys of a class a job of the lane may hold.
func (l *lane) most(c class, halved int32) int {
	n := l.calls
	if c == deletes {
		n = l.keys
	}
	return min(max(n>>halved, 1), l.pacer.most())
}

// split makes groups of as many keys as a round trip of a slow lane has. A unit counts as a whole: one silence of Redis
// while the last of its keys wait for their turn, and all are due once more. At a low pace that would never end.
func (l *lane) split(groups []group) []group {
	if l.ahead == 0 {
		return groups
	}
	var small []group
	for _, g := range groups {
		if g.rate > 0 || g.class == queries {
			small = append(small, g)
			continue
		}
		most := l.most(g.class, 0)
		for from := 0; from < g.size; from += most {
			part := g
			part.size = min(most, g.size-from)
			part.idx = make([]uint32, part.size)
			for i := range part.idx {
				part.idx[i] = uint32(from + i)
				if g.idx != nil {
					part.idx[i] = g.idx[from+i]
				}
			}
			small = append(small, part)
		}
	}
	return small
}
