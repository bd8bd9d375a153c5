package scope

import (
	"context"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

const (
	// pageKeys is how many keys one SCAN looks at: 0.1 to 0.3 ms of Redis' time.
	pageKeys = 200
	// batchKeys is about how many invalidations a batch holds at most.
	batchKeys = 500
	// rests is how many times as long as Redis took for a page a pass rests after it.
	rests = 4
)

// pass is a partition that hands out the keys that it finds in Redis, page by page.
type pass struct {
	tally
	scope *Scope
	task  Task
	// d is the second delete of what is handed out: 0, since a pass begins when one delete is enough.
	d time.Duration

	// server is the one that the pass began on; changed is set once another one has answered.
	server  string
	changed bool
	began   bool
	cursor  uint64
	over    bool
	// keys are those of the page that are still to be looked at.
	keys []string
	// hashes are the keys of the page whose fields are still to be looked at.
	hashes []hash
	// rested is until when Redis is not asked.
	rested time.Time
}

// hash is one whose fields are looked at.
type hash struct {
	key    string
	target *keyspace.Target
	cursor uint64
}

// Fetch implements [eventlog.Partition].
func (p *pass) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	b := p.newBatch()
	for b.Len() < batchKeys {
		var err error
		switch {
		case len(p.keys) > 0:
			p.look(b, p.keys[0])
			p.keys = p.keys[1:]
		case len(p.hashes) > 0:
			err = p.fields(ctx, b)
		case b.Len() > 0:
			return p.handOut(ctx, b)
		case p.over:
			return p.end()
		default:
			err = p.page(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return p.handOut(ctx, b)
}

// handOut hands out a batch once those before it have had their time at the rate: one page may make several.
func (p *pass) handOut(ctx context.Context, b *event.Batch) (*event.Batch, eventlog.Token, error) {
	if err := p.scope.Take(ctx, b.Len()); err != nil {
		return nil, nil, err
	}
	p.task.Progress.Found.Add(int64(b.Len()))
	return b, p.issue(), nil
}

// newBatch returns an empty batch of old news: one delete is enough for each of its keys, and nothing is written.
func (p *pass) newBatch() *event.Batch {
	return &event.Batch{Source: p.task.Source, At: time.Now(), Leftover: true}
}

// look adds what is forgotten of a key.
func (p *pass) look(b *event.Batch, key string) {
	if p.task.Meant != nil && !p.task.Meant(strings.TrimPrefix(key, p.scope.options.Prefix)) {
		return
	}
	p.task.Keys.Match(key, func(t *keyspace.Target) {
		if p.task.Only != nil && !p.task.Only(t) {
			return
		}
		field, one := "", true
		if t.Action.Kind == event.ActionHash {
			field, one = t.Action.Field.Constant()
		}
		if !one {
			p.hashes = append(p.hashes, hash{key: key, target: t})
			return
		}
		p.add(b, t, key, field)
	})
}

// add adds an invalidation that forgets a key, or the field of a hash.
func (p *pass) add(b *event.Batch, t *keyspace.Target, key, field string) {
	v := p.version()
	o := event.Origin{Table: t.Mapping.Spec.Table.Value, Event: v, D: p.d, Mapping: t.Mapping.Ordinal}
	o.Event.Row = 0
	at := b.FindOrigin(&o, len(b.Origins))
	if at < 0 {
		at = len(b.Origins)
		b.AddOrigin(o)
	}
	key = strings.TrimPrefix(key, p.scope.options.Prefix)
	text, effect := append(b.Text(), key...), t.Action.Effect
	if effect != nil && effect.Publish {
		text = event.AppendNull(event.AppendNull(text))
	}
	if effect != nil && effect.Stream {
		text = event.AppendNull(text)
	}
	if t.Action.Kind == event.ActionHash {
		text = event.AppendField(text, field)
		if t.Action.Value == nil {
			effect = nil // without values fields have no guards, and the user may have no right to them
		}
	}
	b.AddItem(event.Item{Text: text, Key: len(key), Row: v.Row, Action: t.Action.Kind, Effect: effect})
	b.Invalidations[b.Len()-1].Origin = uint32(at)
}

// version is that of what is handed out.
func (p *pass) version() event.Version {
	v := p.task.At
	if p.task.Newest != nil {
		if newest := p.task.Newest(); newest.Compare(v) > 0 {
			v = newest
		}
	}
	return v
}

// page asks for the next page of keys.
func (p *pass) page(ctx context.Context) error {
	r, progress := p.scope.deps.Redis, p.task.Progress
	if !p.began {
		if err := p.begin(ctx); err != nil {
			return err
		}
	}
	return p.ask(ctx, func() error {
		keys, next, err := r.Scan(ctx, p.cursor, p.pattern(), pageKeys)
		if err != nil {
			return err
		}
		is, err := r.Server(ctx)
		if err != nil {
			return err
		}
		p.changed = p.changed || is != p.server
		p.keys, p.cursor, p.over = keys, next, next == 0 || p.changed
		progress.Looked.Add(pageKeys)
		return nil
	})
}

// pattern returns what SCAN is asked for.
func (p *pass) pattern() string {
	if p.task.Pattern != "" {
		return router.EscapeGlob(p.scope.options.Prefix) + p.task.Pattern
	}
	return p.task.Keys.Pattern()
}

// begin takes note of where the pass begins.
func (p *pass) begin(ctx context.Context) error {
	r, progress := p.scope.deps.Redis, p.task.Progress
	var size int64
	err := p.ask(ctx, func() (err error) {
		if p.server, err = r.Server(ctx); err == nil {
			size, err = r.Size(ctx)
		}
		return err
	})
	progress.Looked.Store(0)
	progress.Keys.Store(size)
	p.began = err == nil
	return err
}

// fields asks for the next page of the fields of the first hash.
func (p *pass) fields(ctx context.Context, b *event.Batch) error {
	h := &p.hashes[0]
	var fields []string
	err := p.ask(ctx, func() error {
		page, next, err := p.scope.deps.Redis.Fields(ctx, h.key, h.cursor, pageKeys)
		if err == nil {
			fields, h.cursor = page, next
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range fields {
		if h.target.Field(f) {
			p.add(b, h.target, h.key, f)
		}
	}
	if h.cursor == 0 {
		p.hashes = p.hashes[1:]
	}
	return nil
}

// sameServer reports whether one server has answered all of the pass. It is asked at the end, when all that was found
// has had its time.
func (p *pass) sameServer(ctx context.Context) (bool, error) {
	var is string
	err := p.ask(ctx, func() (err error) {
		is, err = p.scope.deps.Redis.Server(ctx)
		return err
	})
	return is == p.server && !p.changed, err
}

// rest waits until Redis may be asked again.
func (p *pass) rest(ctx context.Context) error {
	if err := p.scope.Take(ctx, 0); err != nil {
		return err
	}
	return retry.Sleep(ctx, time.Until(p.rested))
}

// ask asks Redis until it answers, and rests afterwards. It fails only with ctx.
func (p *pass) ask(ctx context.Context, question func() error) error {
	if err := p.rest(ctx); err != nil {
		return err
	}
	var took time.Duration
	loop := retry.Loop{
		Backoff: retry.Backoff{Max: 5 * time.Second},
		Note: func(err error, _ time.Duration) {
			p.task.Progress.Trouble.Store(&err)
			p.changed = p.changed || p.began && p.server == "" // it may be another one that answers next
		},
		Reporter: &retry.Reporter{
			Failed: func(err error) {
				p.scope.deps.Log.Warn("a scope waits for redis; trying again forever", "error", err)
			},
			Recovered: func(time.Duration) {
				p.task.Progress.Trouble.Store(nil)
				p.scope.deps.Log.Info("the scope goes on")
			},
		},
	}
	err := loop.Do(ctx, func() error {
		asked := time.Now()
		err := question()
		took = time.Since(asked)
		return err
	})
	p.rested = time.Now().Add(rests * took)
	return err
}
