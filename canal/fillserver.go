package canal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// fillServer is one of them, and what its goroutine knows.
type fillServer struct {
	*fills
	view    *fillView
	options Options // to connect with

	session *session
	server  string
	looked  time.Time // when a new connection last led to it
	// text is the last answer as it came, own what its own binlog says that it wrote, and ownAt when that was last asked
	// for. claims is what of the answers counts. id is its server_id.
	text   string
	own    event.GTIDSet
	ownAt  time.Time
	claims claims
	id     uint32
	// had is what it last said that it has, and said that it has answered since it was last left out.
	had  *answer
	said bool
	// target is what it must have to be waited for again, and then for its doubts to be answered; targetAt is as of when
	// that is. Zero: there is none.
	target   event.GTIDSet
	targetAt time.Time
	// whole is since when it has had all that was confirmed without it; zero: it has not.
	whole time.Time
	// since is what it was left out with, and passed how far all was confirmed when that was last recorded.
	since  time.Time
	why    string
	passed event.Version
	doubts postponed
}

func (w *fills) server(address, name string) *fillServer {
	s := &fillServer{fills: w, view: w.vis.watchFill(address), options: *w.o}
	s.options.Servers = NewServers(address)
	if len(s.about(s.isMine)) > 0 {
		s.vis.isDoubted(s.view)
	}
	s.options.TLS = w.o.TLS.For(name)
	return s
}

// probe asks the server about itself.
func (s *fillServer) probe(ctx context.Context, source *SourceInfo) FillProbe {
	p := FillProbe{Address: s.view.address}
	if p.Err = s.connect(ctx); p.Err != nil {
		return p
	}
	p.Server = s.server
	a := answer{}
	if p.Err = s.has(&a); p.Err != nil {
		return p
	}
	if r, err := s.session.row("SELECT VERSION(), @@global.read_only"); err == nil {
		p.Version, p.ReadOnly = r[0], r[1] == "1"
	}
	p.Lacks = p.Server != source.Server && a.lacks(&source.Executed)
	return p
}

// run asks one server until ctx ends.
func (s *fillServer) run(ctx context.Context) {
	defer func() {
		s.hangUp()
		s.vis.dropFill(s.view)
		s.m.fillIn.DeleteLabelValues(s.view.address)
	}()
	s.m.fillIn.WithLabelValues(s.view.address).Set(1)
	s.m.fillWait.WithLabelValues(s.view.address)
	for wait := time.Duration(0); retry.Sleep(ctx, wait) == nil; {
		asked := time.Now()
		if err := s.ask(ctx); err != nil && ctx.Err() == nil {
			s.hangUp()
			s.vis.fillFailed(s.view, err)
			s.o.Logger.Debug("a fill server does not say what it has", "source", s.o.Source, "server", s.view.address,
				"error", err)
		}
		if err := s.judge(ctx); err != nil {
			return // only ctx can stop what it does
		}
		period := s.o.Heartbeat
		if _, lacks := s.vis.fillLacks(s.view); lacks || !s.targetAt.IsZero() {
			period /= soonest
		}
		wait = time.Until(asked.Add(period))
	}
}

func (s *fillServer) hangUp() {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
}

// ask asks once what the server has.
func (s *fillServer) ask(ctx context.Context) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	a := answer{server: s.server, made: time.Now(), named: true, whole: true}
	if err := s.has(&a); err != nil {
		return err
	}
	a.received = time.Now()
	if s.had != nil && s.had.ahead(&a) {
		return s.wentBack(ctx, &a)
	}
	first := s.had == nil
	s.had, s.said = &a, true
	if first && s.vis.missed(s.view, &a) {
		return s.out(ctx, s.lacksSince(&a), "it lacks changes that were finished before it was first asked")
	}
	if wait, more := s.vis.fillAnswered(s.view, a); more {
		s.m.fillWait.WithLabelValues(s.view.address).Observe(wait.Seconds())
	}
	return nil
}

func (s *fillServer) lacksSince(has *answer) time.Time {
	return s.vis.lacksSince(s.view, has, s.o.FillTimeout)
}

// look connects if that is needed, and makes sure now and then that the server is still the one that answers at the
// address, and that it is known what it owes: earlier runs, and operators, may have left doubts or ended them.
func (s *fillServer) look(ctx context.Context) error {
	if s.session != nil && time.Since(s.looked) < lookFillEach {
		return nil
	}
	if s.session != nil {
		c, info, err := s.open(ctx)
		if err != nil {
			return err
		}
		c.close()
		if info.Server != s.server {
			s.hangUp()
		}
	}
	if s.session == nil {
		if err := s.connect(ctx); err != nil {
			return err
		}
	}
	s.looked = time.Now()
	if s.targetAt.IsZero() && len(s.owed()) > 0 {
		s.target, s.targetAt = s.vis.target(), time.Now()
	}
	return nil
}

// connect opens a connection, and finds out which server answers. Two connections that lead to two servers are those of
// a balancer: what one server has says nothing of the others.
func (s *fillServer) connect(ctx context.Context) error {
	first, info, err := s.open(ctx)
	if err != nil {
		return err
	}
	second, other, err := s.open(ctx)
	if err != nil {
		first.close()
		return err
	}
	second.close()
	switch is, why := info.HasGTIDsOfAll(); {
	case info.Server != other.Server:
		err = errors.New("two connections lead to two servers: it is a balancer; name the servers themselves in " +
			"source.fill_from, or write source.fill_lag")
	case !is:
		err = fmt.Errorf("its %s: servers of source.fill_from need gtid_mode=ON (on nodes of a Galera cluster "+
			"wsrep_gtid_mode=ON), as the source does", why)
	}
	if err != nil {
		first.close()
		return fmt.Errorf("%s: %w", s.view.address, err)
	}
	s.session, s.id = first, info.ServerID
	if was := s.server; was != "" && was != info.Server {
		return s.replaced(ctx, info.Server)
	}
	s.server = info.Server
	return nil
}

// replaced: another server answers at the address, since when is not known. It may lack what the former one had.
func (s *fillServer) replaced(ctx context.Context, by string) error {
	had := s.had
	s.had, s.own, s.ownAt, s.claims = nil, event.GTIDSet{}, time.Time{}, claims{}
	has := answer{}
	if err := s.has(&has); err != nil {
		s.had = had
		s.hangUp()
		return err
	}
	was := s.server
	s.server = by
	since := s.lacksSince(&has)
	if s.looked.Before(since) {
		since = s.looked
	}
	s.had = &has
	return s.out(ctx, since, "another server answers there, "+by+" instead of "+was)
}

func (s *fillServer) open(ctx context.Context) (*session, *SourceInfo, error) {
	c, err := s.options.connect(ctx, s.o.silence())
	if err != nil {
		return nil, nil, err
	}
	info, err := s.options.identify(c)
	if err != nil {
		c.close()
		return nil, nil, err
	}
	s.options.Flavor = info.Flavor
	return c, info, nil
}

// wentBack: a server that has less than before was restored or rebuilt, or is another one. Its readers fill the cache
// with values from before what it lacks now.
func (s *fillServer) wentBack(ctx context.Context, has *answer) error {
	err := s.out(ctx, s.lacksSince(has), "it has less than before: it was restored or rebuilt, another server answers "+
		"there, or it has transactions that the source lacks")
	s.had = has
	return err
}

// judge leaves the server out if it has been silent or late for too long, and waits for it again once it is back.
func (s *fillServer) judge(ctx context.Context) error {
	if err := s.doubts.keep(ctx, s.o); err != nil {
		return err
	}
	silent := s.vis.silentFor(s.view)
	if c, lacks := s.vis.fillLacks(s.view); lacks {
		// By which clock a change was committed is not known; by ours it was handed over later.
		since := c.since
		if !c.committed.IsZero() && c.committed.Before(since) {
			since = c.committed
		}
		if c.unfinished {
			since = time.Time{} // nobody knows what of before it lacks
		}
		switch late := time.Since(c.seen); {
		case silent >= s.o.FillTimeout:
			return s.out(ctx, since, "it has not answered for "+silent.Round(time.Second).String())
		case late >= s.o.FillTimeout:
			return s.out(ctx, since, "it has lacked a change of the source for "+late.Round(time.Second).String())
		}
	}
	// Where an operator has ended the doubt, it goes on.
	if s.isOut() && s.vis.past(s.passed) && len(s.about(s.isMine)) == 0 {
		return s.out(ctx, s.since, s.why)
	}
	if silent > 0 || !s.said || s.targetAt.IsZero() {
		s.whole = time.Time{}
		return nil
	}
	return s.back(ctx)
}

// out leaves the server out: the doubt is durable before a mark passes over what it lacks. since is when the first
// change was committed that it lacks; zero: nobody knows.
func (s *fillServer) out(ctx context.Context, since time.Time, why string) error {
	d := doubt.Doubt{
		Cause: alarm.FillServerLeftOut, Source: s.o.Source, Subject: s.view.address,
		Message: "source " + s.o.Source + ": " + s.view.address + ", a server that the application fills its cache from " +
			"(source.fill_from), is no longer waited for (source.fill_timeout), since " + why +
			"; readers of it may fill the cache with old values. Once it is back and has all, its keys are forgotten; if " +
			"it will not be back, take it out of source.fill_from",
	}
	if !since.IsZero() {
		d.From = since.Add(-fillMargin).UTC().Format(time.RFC3339)
	}
	if err := s.o.Doubts.Record(ctx, d); err != nil {
		return err
	}
	s.doubts.add(d)
	s.m.fillIn.WithLabelValues(s.view.address).Set(0)
	was := s.isOut()
	passed := s.vis.leaveOut(s.view, true)
	if !was { // else what went by is what has gone by since then
		s.passed = passed
	}
	s.since, s.why, s.said = since, why, false
	s.target, s.targetAt, s.whole = s.vis.target(), time.Now(), time.Time{}
	return nil
}

// owed returns the doubts about the server of which nobody has asked for the answer since it was back.
func (s *fillServer) owed() []doubt.Doubt { return s.doubts.owed(s.about(s.isMine)) }

func (s *fillServer) isMine(address string) bool { return address == s.view.address }

// back takes a step towards the answer to the doubts about a server that answers: it is waited for again once it lags
// no more than it may; then it must have all that was confirmed without it; and then its readers must be over.
func (s *fillServer) back(ctx context.Context) error {
	if s.had.lacks(&s.target) {
		return nil
	}
	switch {
	case s.isOut() && time.Since(s.targetAt) >= s.o.FillTimeout:
		s.target, s.targetAt = s.vis.target(), time.Now() // it comes nearer
	case s.isOut():
		s.vis.leaveOut(s.view, false)
		s.m.fillIn.WithLabelValues(s.view.address).Set(1)
		s.target, s.targetAt = s.vis.target(), time.Now()
	case s.whole.IsZero():
		s.whole = time.Now()
	case time.Since(s.whole) >= s.o.FillSettles:
		return s.answered(ctx)
	}
	return nil
}

func (s *fillServer) isOut() bool {
	s.vis.mu.Lock()
	defer s.vis.mu.Unlock()
	return s.view.out
}

// answered has the doubts about the server answered.
func (s *fillServer) answered(ctx context.Context) error {
	if err := s.doubts.answer(ctx, s.o, s.owed()); err != nil {
		return err
	}
	s.o.Logger.Info("a fill server has all that it lacked: the changes since it was left out are done again",
		"source", s.o.Source, "server", s.view.address)
	s.target, s.targetAt, s.whole = event.GTIDSet{}, time.Time{}, time.Time{}
	return nil
}
