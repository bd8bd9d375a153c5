package invalidator

import "context"

// fetch fetches batches and makes entries of them, as long as there is room.
func (s *partitionLoop) fetch(ctx context.Context) {
	var split dedup
	for {
		err := s.engine.room.wait(ctx, s.takesMore)
		if err == nil {
			err = s.fetchOne(ctx, &split)
		}
		if err != nil {
			s.fetchEnd <- err
			return
		}
	}
}

// takesMore reports whether the partition itself has room.
func (s *partitionLoop) takesMore() bool {
	return !s.full.Load() && !s.holdsItsShare() && (s.lane.ahead == 0 || s.held.inFlight.Load() < s.lane.ahead)
}

func (s *partitionLoop) fetchOne(ctx context.Context, split *dedup) error {
	s.idle.Store(true)
	b, token, err := s.log.Fetch(ctx)
	s.idle.Store(false)
	if err != nil {
		return err
	}
	groups, duplicates := split.split(b)
	s.engine.metrics.duplicates.Add(float64(duplicates))
	for _, g := range groups {
		s.engine.spans.saw(g.d)
	}
	t := s.engine.topology.Load()
	groups = s.lane.split(t.split(b, groups))
	if s.engine.hot != nil {
		s.engine.hot.Count(b)
	}
	e := newEntry(b, token, groups, t.since, s.engine.clock())
	if s.gentle {
		e.awaitQueries()
	}
	e.aged = s.engine.aged(b, e.fetched)
	if !b.Read.IsZero() {
		e.walked, e.fetched = true, s.engine.instant(b.Read)
		e.aged = e.fetched
	}
	s.take(e.load())
	select {
	case s.fetched <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
