package connect

import (
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Mappings says in the router's words what the configuration says.
func Mappings(in []config.Mapping) []router.Mapping {
	out := make([]router.Mapping, len(in))
	for i, m := range in {
		out[i] = router.Mapping{
			Pos:          router.Pos(m.Pos),
			Table:        text(m.Table),
			Events:       router.Events(m.Events),
			Columns:      texts(m.Columns),
			When:         text(m.When),
			Keys:         texts(m.Keys),
			SecondDelete: m.SecondDelete,
			RateLimit:    m.RateLimit,
			Rebuild:      routerRebuild(m.Rebuild),
			Incr:         text(m.Incr),
		}
		routerActions(&out[i], &m)
	}
	return out
}

func routerActions(out *router.Mapping, m *config.Mapping) {
	if h := m.Hash; h != nil {
		out.Hash = &router.Hash{Pos: router.Pos(h.Pos), Key: text(h.Key), Field: text(h.Field), Value: text(h.Value)}
	}
	if s := m.Set; s != nil {
		out.Set = &router.Set{Pos: router.Pos(s.Pos), Key: text(s.Key), Member: text(s.Member)}
	}
	if z := m.ZSet; z != nil {
		out.ZSet = &router.ZSet{Pos: router.Pos(z.Pos), Key: text(z.Key), Member: text(z.Member), Score: text(z.Score)}
	}
	if e := m.Expire; e != nil {
		out.Expire = &router.Expire{Pos: router.Pos(e.Pos), Keys: texts(e.Keys), In: e.In}
	}
	if p := m.Publish; p != nil {
		out.Publish = &router.Publish{Pos: router.Pos(p.Pos), Channel: text(p.Channel), Message: text(p.Message)}
	}
	if s := m.Stream; s != nil {
		out.Stream = &router.Stream{Pos: router.Pos(s.Pos), Key: text(s.Key), MaxLen: s.MaxLen}
	}
}

func routerRebuild(r *config.Rebuild) *router.Rebuild {
	if r == nil {
		return nil
	}
	out := &router.Rebuild{
		Pos: router.Pos(r.Pos), FromRow: r.FromRow, Query: text(r.Query), As: form(r.As), Value: text(r.Value), Columns: texts(r.Columns),
		DecimalNumbers: r.Decimals == config.DecimalsNumber, Many: r.Rows == config.RowsMany,
		ExpireAt: r.ExpireAt, TTL: r.TTL, Jitter: r.Jitter,
	}
	if m := r.Missing; m != nil {
		out.Missing = &router.Missing{Cache: m.Cache.Value, TTL: m.TTL}
	}
	return out
}

// form says in an event's words how a value is kept.
func form(f config.Form) event.Form {
	switch f {
	case config.FormHash:
		return event.FormHash
	case config.FormString:
		return event.FormString
	}
	return event.FormJSON
}

func text(t config.Text) router.Text {
	return router.Text{Value: t.Value, Pos: router.Pos(t.Pos), Locate: func(offset int) router.Pos { return router.Pos(t.At(offset)) }}
}

func texts(in []config.Text) []router.Text {
	out := make([]router.Text, len(in))
	for i, t := range in {
		out[i] = text(t)
	}
	return out
}
