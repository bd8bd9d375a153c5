package invalidator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/retry"
)

// record is some changes as they wait in the log.
type record struct {
	at      time.Duration // when it is there
	term    uint64
	changes []int
	// leftover says that an older leader left it behind work of a newer one.
	leftover bool
}

// simToken is the ordinal of the last record of a batch, as one life of the process got it.
type simToken struct {
	eventlog.Issued
	life, record int
}

// process is freshet in the world: killed and started again, with what outlives it.
type process struct {
	w         *world
	records   []record
	store     *memStore
	committed int // records; guarded by w.mu, as is what follows
	life      int
	lastMarks map[uint64]event.Mark // by term: what a compacted topic keeps
	ended     sync.WaitGroup
	failure   error
	// leader is the process that does what is done besides the log, if it is another one, and of the one that it does
	// so for.
	leader, of *process
}

// asks are the heartbeats of one life: when the servers were asked, and what they confirmed.
type asks struct {
	mu  sync.Mutex
	ask []ask
}

type ask struct {
	at        time.Duration
	confirmed int
}

func (a *asks) add(at time.Duration, confirmed int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ask = append(a.ask, ask{at, confirmed})
}

// age returns for how long the change had been known to be visible at t.
func (a *asks) age(change int, t time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.ask {
		if k.confirmed >= change {
			return t - k.at
		}
	}
	return event.Unknown
}

// layOut makes the log's records: in commit order, and with Kafka also duplicates out of order, and what a second
// leader sends again. Deletes bear a duplicate that comes alone. A real log hands out again, in order, all that
// follows as well, and for values it matters: see [scenario.follow].
func (s *scenario) layOut(rng *rand.Rand) []record {
	var records []record
	for i, c := range s.changes {
		term := s.term(i)
		records = append(records, record{at: c.event, term: term, changes: []int{i}})
		if s.isLiar && c.event <= s.takeover {
			again := s.takeover + time.Duration(rng.Int64N(int64(s.d)))
			records = append(records, record{at: again, term: 2, changes: []int{i}})
		}
		if s.isKafka && rng.IntN(3) == 0 {
			late := c.event + time.Duration(rng.Int64N(int64(3*s.d)))
			records = append(records, record{at: late, term: term, changes: []int{i}})
		}
	}
	records = s.follow(records, rng)
	for _, i := range s.lates {
		late := s.end + 26*time.Second + time.Duration(rng.Int64N(int64(s.d)))
		records = append(records, record{at: late, term: 1, changes: []int{i}})
	}
	slices.SortStableFunc(records, func(a, b record) int { return int(a.at - b.at) })
	highest := uint64(0)
	for i := range records {
		highest = max(highest, records[i].term)
		records[i].leftover = records[i].term < highest
	}
	return records
}

// follow adds, after each record of a rebuilt row that has come again, all later changes of the row, for a reader that
// sends a change again sends again what followed it.
func (s *scenario) follow(records []record, rng *rand.Rand) []record {
	seen := map[int]bool{}
	for _, r := range slices.Clone(records) {
		i := r.changes[0]
		again := seen[i]
		seen[i] = true
		if !again || !s.kinds[s.changes[i].row].values {
			continue
		}
		at := r.at
		for j := i + 1; j < len(s.changes); j++ {
			if s.changes[j].row == s.changes[i].row {
				at = max(at, s.changes[j].event) + time.Duration(rng.Int64N(int64(20*time.Millisecond)))
				records = append(records, record{at: at, term: max(r.term, s.term(j)), changes: []int{j}})
			}
		}
	}
	return records
}

// term is the leader's that sends a change for the first time.
func (s *scenario) term(change int) uint64 {
	if s.isLiar && s.changes[change].event > s.takeover {
		return 2
	}
	return 1
}

// simLog is the partition as one life of the process sees it.
type simLog struct {
	p    *process
	life int
	next int
	asks *asks
}

// ID implements [eventlog.Partition].
func (*simLog) ID() int { return 0 }

// Fetch implements [eventlog.Partition].
func (l *simLog) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	w := l.p.w
	if l.next == len(l.p.records) || l.p.isOver(l.life) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	if err := w.until(ctx, l.p.records[l.next].at); err != nil {
		return nil, nil, err
	}
	first := l.p.records[l.next]
	w.mu.Lock()
	most := 1 + w.rng.IntN(4)
	ageKnown := !w.isKafka || w.rng.IntN(2) == 0
	w.mu.Unlock()
	changes := slices.Clone(first.changes)
	for l.next++; l.next < len(l.p.records) && !w.isKafka && most > 1; l.next++ {
		r := l.p.records[l.next]
		if r.at > w.now() {
			break
		}
		changes = append(changes, r.changes...)
		most--
	}
	b := w.batch(changes, first.term)
	b.Leftover = first.leftover
	last := changes[len(changes)-1]
	switch {
	case !w.isKafka:
		b.Age, b.At = l.asks.age(last, w.now()), time.Now()
	case ageKnown && !w.isLiar:
		b.Age = l.p.honestAge(last, first.at)
	}
	return b, simToken{life: l.life, record: l.next}, nil
}

// isOver reports whether another life has taken over: this one may go on, and is given nothing more.
func (p *process) isOver(life int) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return life != p.life
}

// honestAge is the age that a reader on another machine wrote on a record at t.
func (p *process) honestAge(change int, t time.Duration) time.Duration {
	for at := time.Duration(0); at <= t; at += p.w.askEvery {
		if p.w.confirmed(p.w.servers, at) >= change {
			return t - at
		}
	}
	return event.Unknown
}

// batch is the changes under their mappings.
func (w *world) batch(changes []int, term uint64) *event.Batch {
	var b event.Batch
	b.Reset()
	b.Source, b.Term = "s", term
	for _, i := range changes {
		row := w.changes[i].row
		for _, d := range w.mappings(row) {
			v := version(i)
			v.Row = 0
			b.AddOrigin(event.Origin{Table: "shop.row", Event: v, D: d, Mapping: row, RateLimit: w.kinds[row].limit})
			b.AddItem(w.item(b.Text(), row, i))
		}
	}
	return b.Clone()
}

// item is what a change does to its row's key.
func (w *world) item(text []byte, row, change int) event.Item {
	k := w.kinds[row]
	it := event.Item{Key: len(w.key(row)), Row: 1, Action: event.ActionDelete}
	text = append(text, w.key(row)...)
	if k.values || k.told {
		it.Effect = &event.Effect{Publish: k.told, As: event.FormString}
	}
	if k.told {
		text = event.AppendField(event.AppendField(text, "rows"), strconv.Itoa(row))
	}
	if k.values {
		it.Action, it.Intent = event.ActionRebuild, event.IntentPut
		if k.query {
			it.Effect.Query = "the row"
			text = event.AppendField(text, strconv.Itoa(row))
		} else {
			text = event.AppendField(text, strconv.Itoa(change))
		}
	}
	it.Text = text
	return it
}

// Commit implements [eventlog.Partition].
func (l *simLog) Commit(t eventlog.Token) {
	w := l.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	k := t.(simToken)
	if k.life != l.p.life {
		return
	}
	if k.record <= l.p.committed {
		l.p.failure = errors.New("the watermark moved back")
	}
	l.p.committed = max(l.p.committed, k.record)
	w.note("commit %d of %d", k.record, len(l.p.records))
	l.p.moveStamp()
}

// simStore is the store as one life of the process sees it: what it had not written when it was killed is lost.
type simStore struct {
	*memStore
	p    *process
	life int
}

var errKilled = errors.New("killed")

// Park implements [retry.Store].
func (s simStore) Park(ctx context.Context, entries []retry.Entry) error {
	return s.write(ctx, func() error {
		for i := range entries {
			s.p.w.parked[entries[i].Key] = true
		}
		return s.memStore.Park(ctx, entries)
	})
}

// Settle implements [retry.Store].
func (s simStore) Settle(ctx context.Context, done []uint64, again []retry.Entry) error {
	return s.write(ctx, func() error { return s.memStore.Settle(ctx, done, again) })
}

func (s simStore) write(ctx context.Context, write func() error) error {
	w := s.p.w
	if err := w.until(ctx, w.now()+3*time.Millisecond); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.life != s.p.life {
		return errKilled
	}
	if err := write(); err != nil {
		return err
	}
	if w.chance(w.lose) {
		return errLost // written all the same
	}
	return nil
}

// live runs one life of the process until ctx ends.
func (p *process) live(t *testing.T, ctx context.Context) {
	w := p.w
	w.mu.Lock()
	p.life++
	life, committed := p.life, p.committed
	o := w.caps
	o.Retry = retry.Policy{
		MaxAttempts: 4, ParkAfter: 2, ParkDelays: []time.Duration{w.d / 10, w.d},
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
	}
	w.note("life %d begins at record %d", life, committed)
	w.mu.Unlock()
	d := Deps{
		Rebuilder: simRebuilder{w}, Store: simStore{p.store, p, life}, Alarms: &alarms{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if w.nodes > 1 {
		d.Cluster = simCluster{w}
	} else {
		d.Redis = simRedis{w: w}
	}
	e, err := New(d, o)
	if err != nil {
		t.Error(err)
		return
	}
	if w.oneQuery {
		e.queries.most = 1
	}
	log := &simLog{p: p, life: life, next: committed, asks: &asks{}}
	p.ended.Go(func() { p.check(e.Run(ctx)) })
	p.ended.Go(func() { p.beat(ctx, e, log.asks) })
	if p.of == nil {
		p.ended.Go(func() { p.check(e.Serve(ctx, log)) })
	}
	if p.leader == nil {
		p.ended.Go(func() { p.runErrands(ctx, e, life) })
	}
	if p.of != nil {
		p.ended.Go(func() { p.stamps(ctx) })
	}
}

func (p *process) check(err error) {
	if err != nil {
		p.w.mu.Lock()
		p.failure = err
		p.w.mu.Unlock()
	}
}

// beat asks the servers what they have executed, at each heartbeat, and passes the marks on.
func (p *process) beat(ctx context.Context, e *Engine, known *asks) {
	w := p.w
	w.mu.Lock()
	for _, m := range p.lastMarks {
		e.Mark(m)
	}
	w.mu.Unlock()
	var late sync.WaitGroup
	defer late.Wait()
	if w.isApart {
		w.hears(ctx, e)
		return
	}
	for ctx.Err() == nil {
		now := w.now()
		honest := w.confirmed(w.servers, now)
		known.add(now, honest)
		w.mu.Lock()
		p.moveStamp()
		replays := w.goBack > 0 && w.chance(0.3)
		w.mu.Unlock()
		if replays {
			p.store.replay()
		}
		if w.isLiar && now < w.takeover+4*w.d {
			// The old leader does not know yet that it is none, nor that the second server is read again.
			p.send(ctx, &late, e, 1, w.confirmed(1, now))
		} else if !w.isLiar {
			p.send(ctx, &late, e, 1, honest)
		}
		if w.isLiar && now >= w.takeover {
			p.send(ctx, &late, e, 2, honest)
		}
		_ = w.until(ctx, now+w.askEvery)
	}
}

// send delivers a mark, after a while.
func (p *process) send(ctx context.Context, late *sync.WaitGroup, e *Engine, term uint64, confirmed int) {
	w := p.w
	if confirmed < 0 {
		return
	}
	w.mu.Lock()
	at := w.now() + time.Duration(w.rng.Int64N(int64(w.lateMark)+1))
	m := event.Mark{Source: "s", Term: term, Version: version(confirmed), Read: true}
	if w.isKafka {
		p.lastMarks[term] = m
	}
	w.mu.Unlock()
	late.Go(func() {
		if w.until(ctx, at) == nil {
			e.Mark(m)
		}
	})
}

// hears has an engine be given the marks that the reader makes, until ctx ends.
func (w *world) hears(ctx context.Context, e *Engine) {
	w.mu.Lock()
	w.engines[e] = true
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.engines, e)
}

// reads is the reader where several processes hear its marks, each when its own time has come.
func (p *process) reads(ctx context.Context) {
	w := p.w
	var late sync.WaitGroup
	defer late.Wait()
	for ctx.Err() == nil {
		now := w.now()
		confirmed := w.confirmed(w.servers, now)
		w.mu.Lock()
		engines := slices.Collect(maps.Keys(w.engines))
		w.mu.Unlock()
		for _, e := range engines {
			p.send(ctx, &late, e, 1, confirmed)
		}
		for _, s := range p.stores() {
			w.mu.Lock()
			replays := w.goBack > 0 && w.chance(0.3)
			w.mu.Unlock()
			if replays {
				s.replay()
			}
		}
		_ = w.until(ctx, now+w.askEvery)
	}
}
