package retrytest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

func (s *suite) parked() {
	a, b, c := Entry(30), Entry(10), Entry(20)
	a.ID, b.ID = 7, 7 // the caller's IDs mean nothing
	a.Key, b.Key = "\x00\xff not text \x80", strings.Repeat("long", 16_000)
	a.Notices = []retry.Notice{
		{
			Publish: true, Stream: true, MaxLen: 10,
			Fields: event.AppendField(event.AppendField(event.AppendField(nil, "c"), "\xff\x00"), "s"),
		},
		{Stream: true, Fields: event.AppendField(nil, "other")},
	}
	s.park(a, b, c)
	s.store = s.rig.Open()
	s.rig.Seen()
	for _, now := range []int64{9, 10} {
		s.want("half a microsecond early", s.due(time.Unix(now, 0)))
	}
	s.want("due", s.due(time.Unix(20, 500)), b.Key, c.Key)
	got := s.due(ever())
	s.want("due", got, b.Key, c.Key, a.Key)
	for i, want := range []retry.Entry{b, c, a} {
		s.same(want.Key[:4], got[i], want)
	}
	if some, err := s.store.Due(s.Context(), ever(), 2); err != nil || len(some) != 2 {
		s.Errorf("%d keys where two are asked for (%v)", len(some), err)
	}
	if next, err := s.store.NextDue(s.Context()); err != nil || !next.Equal(b.Due) {
		s.Errorf("the next is due at %s (%v), want %s", next, err, b.Due)
	}
}

func (s *suite) empty() {
	if next, err := s.store.NextDue(s.Context()); err != nil || !next.IsZero() {
		s.Errorf("next due at %s (%v)", next, err)
	}
	s.want("due", s.due(ever()))
	s.want("dead", s.dead(retry.Filter{}))
	s.settle([]uint64{1, 2})
}

func (s *suite) settled() {
	s.park(Entry(1), Entry(2), Entry(3), Entry(4))
	got := s.due(time.Unix(4, 0))
	s.want("due", got, "user:1", "user:2", "user:3")
	later, given := got[1], got[2]
	later.Due, later.Attempts, later.Error = time.Unix(100, 0).UTC(), 4, "again"
	given.Due, given.Attempts = time.Time{}, 8
	for range 2 { // the second time changes nothing: the first reply may have been lost
		s.settle(ids(got[:1]), later, given)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			s.store = s.rig.Open()
			s.rig.Seen()
		}
		parked := s.due(ever())
		s.want("parked", parked, "user:4", "user:2")
		s.same("parked for later", parked[1], later)
		dead := s.dead(retry.Filter{})
		s.want("dead", dead, "user:3")
		s.same("dead", dead[0], given)
	}
}

func (s *suite) hot() {
	for n := range 50 {
		e := Entry(1)
		e.Version, e.D = At(uint64(100-n)), time.Duration((n+5)%10)*time.Second
		e.Last = time.Unix(int64(10+n), 0).UTC()
		e.First, e.Due = e.Last, e.Last.Add(10*time.Second)
		e.Notices = []retry.Notice{{Publish: true, Fields: event.AppendField(nil, strings.Repeat("x", n%20))}}
		s.must(s.store.Park(s.Context(), []retry.Entry{e, e}))
	}
	s.rig.Seen()
	got := s.due(time.Unix(100, 0))
	s.want("due", got, "user:1")
	if e := got[0]; e.Version != At(100) || e.D != 9*time.Second || !e.First.Equal(time.Unix(10, 0)) ||
		!e.Last.Equal(time.Unix(59, 0)) {
		s.Errorf("merged to %+v", e)
	}
	if e := got[0]; len(e.Notices) != 16 || e.Untold == 0 {
		s.Errorf("%d notices, want as many as there is room for, each once; %d were counted", len(e.Notices), e.Untold)
	}
	other := Entry(1)
	other.Table = "shop.cart"
	s.park(other)
	s.want("of two tables", s.due(time.Unix(100, 0)), "user:1", "user:1")
	s.settle(ids(s.due(time.Unix(100, 0))))
	s.want("settled", s.due(ever()))
}

// foreign: an entry of what was not changed itself has a version that no guard may take for the key's own.
func (s *suite) foreign() {
	own, newer, found := Entry(5), Entry(5), Entry(5)
	own.Action = event.ActionRebuild
	newer.Version = At(6)
	found.Foreign, found.Version = true, At(20)
	later := found
	later.Version = At(21)
	for name, c := range map[string]struct {
		parked []retry.Entry
		want   retry.Entry
	}{
		"found alone":            {[]retry.Entry{found}, found},
		"found twice":            {[]retry.Entry{later, found}, later},
		"changed, then found":    {[]retry.Entry{own, found}, own},
		"found, then changed":    {[]retry.Entry{later, own}, own},
		"changed while it waits": {[]retry.Entry{own, found, newer}, newer},
	} {
		for _, e := range c.parked {
			s.park(e)
		}
		s.store = s.rig.Open()
		s.rig.Seen()
		got := s.due(ever())
		s.want(name, got, own.Key)
		s.same(name, got[0], c.want)
		given := got[0]
		given.Due = time.Time{}
		s.settle(nil, given)
		dead := s.dead(retry.Filter{})
		s.want(name+", dead", dead, own.Key)
		s.same(name+", dead", dead[0], given)
		_, err := s.store.Purge(s.Context(), retry.Filter{})
		s.must(err)
	}
}

// anyAction: an entry says what was to be done, and no more than that: two of one key are one attempt.
func (s *suite) anyAction() {
	var all []retry.Entry
	for a := event.ActionDelete; a <= event.ActionIncr; a++ {
		e := Entry(int(a))
		e.Action = a
		all = append(all, e)
	}
	s.park(all...)
	s.store = s.rig.Open()
	s.rig.Seen()
	parked := s.due(ever())
	for i, want := range all {
		s.same(want.Action.String(), parked[i], want)
	}
	given := parked[len(parked)-1]
	given.Due = time.Time{}
	s.settle(ids(parked[:len(parked)-1]), given)
	dead := s.dead(retry.Filter{})
	s.want("dead", dead, given.Key)
	s.same("dead", dead[0], given)

	newer, older := Entry(10), Entry(10)
	newer.Action, newer.Version = event.ActionRebuild, At(20)
	older.Action = event.ActionIncr
	s.park(newer)
	s.park(older)
	got := s.due(ever())
	s.want("of two actions", got, newer.Key)
	if got[0].Action != event.ActionRebuild || got[0].Version != At(20) {
		s.Errorf("merged to %s of %s", got[0].Action, got[0].Version)
	}
	s.settle(ids(got))
	s.want("settled", s.due(ever()))
}

func (s *suite) underWay() {
	second := Entry(1)
	second.Version = At(2)
	for name, settle := range map[string]func(under retry.Entry){
		"done": func(under retry.Entry) { s.settle([]uint64{under.ID}) },
		"failed": func(under retry.Entry) {
			under.Attempts, under.Due = 5, time.Unix(50, 0).UTC()
			s.settle(nil, under)
		},
		"given up": func(under retry.Entry) {
			under.Due = time.Time{}
			s.settle(nil, under)
		},
	} {
		for _, offered := range []bool{false, true} { // the second may be offered before the first is settled
			s.park(Entry(1))
			under := s.due(ever()) // the delete is sent for version 1
			s.want(name, under, "user:1")
			s.park(second) // version 2 failed meanwhile
			if offered {
				s.due(ever())
			}
			settle(under[0])
			left := append(s.due(ever()), s.dead(retry.Filter{})...)
			if !slices.ContainsFunc(left, func(e retry.Entry) bool { return e.Version == At(2) }) {
				s.Errorf("%s: version 2 was settled by an attempt that began before it: %+v", name, left)
			}
			if n := len(s.due(ever())); n > 1 {
				s.Errorf("%s: %d attempts for one key", name, n)
			}
			s.settle(ids(s.due(ever())))
			s.want(name+", then settled", s.due(ever()))
			_, err := s.store.Purge(s.Context(), retry.Filter{})
			s.must(err)
		}
	}
}

func (s *suite) ended() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, err1 := s.store.Due(ctx, ever(), 1)
	_, err2 := s.store.NextDue(ctx)
	_, err3 := s.store.DeadLetters(ctx, retry.Filter{}, 0, 1)
	_, err4 := s.store.Purge(ctx, retry.Filter{})
	_, err5 := s.store.Replay(ctx, retry.Filter{}, ever())
	errs := []error{
		s.store.Park(ctx, []retry.Entry{Entry(1)}), s.store.Settle(ctx, []uint64{1}, nil), err1, err2, err3,
		err4, err5,
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, context.Canceled) }); i >= 0 {
		s.Errorf("call %d: %v", i, errs[i])
	}
	s.rig.Seen()
	s.want("parked", s.due(ever()))
}

func (s *suite) refused() {
	e := Entry(1)
	e.Action = event.Action(200)
	if err := s.store.Park(s.Context(), []retry.Entry{Entry(2), e}); err == nil {
		s.Error("an entry is stored that could not be read again")
	}
	s.rig.Seen()
	s.want("parked", s.due(ever()))
}
