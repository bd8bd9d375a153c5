package router

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/query"
)

// Action is one thing that a mapping does to the keys of one template.
type Action struct {
	Kind event.Action
	// Effect is nil for a plain delete. All keys of a mapping, and all that expire, share one.
	Effect *event.Effect
	Key    *Template
	// Field is that of a hash, or the member of a set.
	Field *Template
	// Value is that of the field, the score, or the string of a rebuild; nil where no template makes it.
	Value   *Template
	rebuild *rebuild
	// Notices are what follows the keys; nil for none.
	Notices *Notices
}

// Writes reports whether the action writes what the row holds, and not only makes the cache forget.
func (a *Action) Writes() bool {
	switch a.Kind {
	case event.ActionHash:
		return a.Value != nil
	case event.ActionRebuild, event.ActionSet, event.ActionZSet:
		return true
	}
	return false
}

// Notices are the templates of what is sent after each action on a key; nil for none.
type Notices struct{ Channel, Message, Stream *Template }

// rebuild is a parsed Rebuild.
type rebuild struct {
	spec *spec.Rebuild
	// columns are those of the value; nil for all.
	columns []chosen
	// query is nil with FromRow.
	query *query.Query
}

// chosen is one column of a value, and the name that it has there.
type chosen struct {
	column, name string
	// at is where the column's name stands.
	at spec.Pos
}

// maxCarried bounds the copies of a key that carry a value or a message: the row of which they are made may ask for
// MaxValue bytes with each.
const maxCarried = 64

// mappingParser parses one mapping.
type mappingParser struct {
	*spec.Collector
	m *Mapping
}

// actions parses what is done, in the order in which a row's invalidations are carried.
func (p *mappingParser) actions() {
	m := p.m.Spec
	p.keys()
	if h := m.Hash; h != nil {
		p.act(Action{
			Kind: event.ActionHash, Effect: &event.Effect{}, Key: p.template(roleKey, &h.Key),
			Field: p.template(roleField, &h.Field),
			Value: p.optional(roleValue, &h.Value),
		})
	}
	if s := m.Set; s != nil {
		p.act(Action{
			Kind: event.ActionSet, Effect: &event.Effect{}, Key: p.template(roleKey, &s.Key),
			Field: p.template(roleMember, &s.Member),
		})
	}
	if z := m.ZSet; z != nil {
		p.act(Action{
			Kind: event.ActionZSet, Effect: &event.Effect{}, Key: p.template(roleKey, &z.Key),
			Field: p.template(roleMember, &z.Member),
			Value: p.optional(roleScore, &z.Score),
		})
	}
	if e := m.Expire; e != nil {
		effect := &event.Effect{In: e.In}
		for i := range e.Keys {
			p.act(Action{Kind: event.ActionExpire, Effect: effect, Key: p.template(roleKey, &e.Keys[i])})
		}
	}
	if m.Incr.Value != "" {
		p.act(Action{Kind: event.ActionIncr, Effect: &event.Effect{}, Key: p.template(roleKey, &m.Incr)})
	}
	if len(p.m.Actions) == 0 {
		p.Add(m.Pos, "mapping of "+spec.Quote(m.Table.Value)+" has no keys", `write at least one, such as "product:{id}"`)
	}
}

// scope checks that what is said of free text is about columns that there are in keys, each once.
func (p *mappingParser) scope() {
	var names []string
	for i := range p.m.Actions {
		a := &p.m.Actions[i]
		for _, t := range []*Template{a.Key, a.Field} {
			if t != nil {
				names = append(names, t.Columns()...)
			}
		}
	}
	for i, s := range p.m.Spec.Scope {
		is := func(name string) bool { return strings.EqualFold(name, s.Column.Value) }
		switch {
		case slices.ContainsFunc(p.m.Spec.Scope[:i], func(o spec.FreeText) bool { return is(o.Column.Value) }):
			p.Add(s.Column.Pos, "scope: "+spec.Quote(s.Column.Value)+" comes twice", "remove one")
		case !slices.ContainsFunc(names, is):
			p.Add(s.Column.Pos, "scope: no key, field or member of the mapping has the column "+spec.Quote(s.Column.Value),
				spec.Suggest(s.Column.Value, names, "remove it"))
		}
	}
}

func (p *mappingParser) act(a Action) {
	if a.Key != nil && a.Key.copies > maxCarried &&
		(a.Notices != nil || a.Writes() && a.Kind != event.ActionSet && a.Kind != event.ActionZSet) {
		p.Add(a.Key.Text.At(0), fmt.Sprintf("key %s: it makes %d copies, each with a value or a message",
			spec.Quote(a.Key.Text.Value), a.Key.copies),
			fmt.Sprintf("write at most %d copies", maxCarried))
	}
	p.m.Actions = append(p.m.Actions, a)
	p.m.Writes = p.m.Writes || a.Writes()
	p.m.counts = p.m.counts || a.Kind == event.ActionIncr
}

// keys parses what is done with the mapping's own keys: they are deleted or rebuilt, and notices follow.
func (p *mappingParser) keys() {
	m := p.m.Spec
	a := Action{Kind: event.ActionDelete}
	if r := m.Rebuild; r != nil {
		a.Kind, a.rebuild = event.ActionRebuild, &rebuild{spec: r}
		a.Effect = &event.Effect{As: r.As, TTL: r.TTL, Jitter: r.Jitter, ExpireAt: r.ExpireAt}
		if r.Missing != nil {
			a.Effect.Missing, a.Effect.MissingValue, a.Effect.MissingTTL = true, r.Missing.Cache.Value, r.Missing.TTL
		}
		p.rebuild(&a)
	}
	p.notices(&a)
	for i := range m.Keys {
		a.Key = p.template(roleKey, &m.Keys[i])
		p.act(a)
	}
	if len(m.Keys) == 0 && a.Effect != nil {
		p.Add(m.Pos, "rebuild, publish and stream are about keys, and the mapping has none",
			`write keys:, such as "product:{id}"`)
	}
}

func (p *mappingParser) notices(a *Action) {
	m := p.m.Spec
	if m.Publish == nil && m.Stream == nil {
		return
	}
	if a.Effect == nil {
		a.Effect = &event.Effect{}
	}
	a.Notices = &Notices{}
	if s := m.Publish; s != nil {
		a.Effect.Publish = true
		a.Notices.Channel, a.Notices.Message = p.template(roleChannel, &s.Channel), p.template(roleMessage, &s.Message)
	}
	if s := m.Stream; s != nil {
		a.Effect.Stream, a.Effect.MaxLen = true, s.MaxLen
		a.Notices.Stream = p.template(roleStream, &s.Key)
	}
}

// rebuild parses what the value is made of.
func (p *mappingParser) rebuild(a *Action) {
	r := a.rebuild
	switch {
	case !r.spec.FromRow:
		p.query(a)
	case r.spec.As == event.FormString:
		a.Value = p.template(roleValue, &r.spec.Value)
	default:
		for i := range r.spec.Columns {
			p.column(r, &r.spec.Columns[i])
		}
	}
}

// query parses the query; its fingerprint is of all that the value depends on.
func (p *mappingParser) query(a *Action) {
	r := a.rebuild.spec
	q, err := query.Parse(r.Query.Value)
	if err != nil {
		at := 0
		var bad *query.Error
		if errors.As(err, &bad) {
			at = bad.Offset
		}
		p.Add(r.Query.At(at), "query: "+err.Error(), "")
		return
	}
	schema, _ := p.m.pattern.schema.exact()
	q.Identify(schema, r.As.String(), string(cmp.Or(r.Rows, spec.RowsOne)),
		string(cmp.Or(r.Decimals, spec.DecimalsString)))
	a.rebuild.query, a.Effect.Query = q, q.ID
}

// column parses one column of a value: its name, or its name, as, and the name that it has there. Names may stand in
// backticks.
func (p *mappingParser) column(r *rebuild, t *spec.Text) {
	c, f := parseChosen(t)
	if f == nil {
		switch same := func(o chosen) bool { return o.name == c.name }; {
		case slices.ContainsFunc(r.columns, same):
			f = &fault{0, spec.Quote(c.name) + " comes twice", "give one of them another name: " +
				spec.Quote(c.column+" as "+c.name+"2")}
		case r.spec.ExpireAt > 0 && c.name == expireAt:
			f = &fault{0, "expire_at is the name of what expire_at puts there", "give the column another name"}
		}
	}
	if f != nil {
		faults(p.Collector, "column", t, []fault{*f})
	}
	// It is kept in any case: a value without it would be another.
	r.columns = append(r.columns, c)
}

// expireAt is what the logical expiry is called inside a value.
const expireAt = "expire_at"

func parseChosen(t *spec.Text) (chosen, *fault) {
	p := &nameParser{text: t.Value}
	p.blank()
	c := chosen{at: t.At(p.at)}
	const do = `write a column, or a column and its name in the value: "user_name as userName"`
	var f *fault
	if c.column, f = p.name(); f != nil {
		return c, f
	}
	c.name = c.column
	p.blank()
	if p.at == len(p.text) {
		return c, nil
	}
	as := p.at
	if word, f := p.name(); f != nil || !strings.EqualFold(word, "as") {
		return c, &fault{as, "unexpected " + spec.Quote(p.text[as:]), do}
	}
	p.blank()
	if c.name, f = p.name(); f != nil {
		return c, f
	}
	if p.blank(); p.at < len(p.text) {
		return c, &fault{p.at, "unexpected " + spec.Quote(p.text[p.at:]), do}
	}
	return c, nil
}

// nameParser reads names that stand apart from each other.
type nameParser struct {
	text string
	at   int
}

func (p *nameParser) blank() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

func (p *nameParser) name() (string, *fault) {
	if p.at < len(p.text) && p.text[p.at] == '`' {
		name, end, f := unquote(p.text, p.at)
		if f == nil {
			p.at = end
		}
		return name, f
	}
	from := p.at
	for p.at < len(p.text) && p.text[p.at] != ' ' && p.text[p.at] != '\t' {
		p.at++
	}
	if from == p.at {
		return "", &fault{from, "a name is missing", "write a column's name"}
	}
	return p.text[from:p.at], nil
}

// template parses one template; what is wrong with it is told where it stands.
func (p *mappingParser) template(r role, t *spec.Text) *Template {
	parsed, fs := parseTemplate(*t)
	if parsed != nil {
		parsed.role = r
		for _, n := range parsed.Parts {
			if n.Kind == NodeCopies && r != roleKey {
				fs = append(fs, fault{n.At, "copies are for keys", "remove " + n.String()})
			}
		}
	}
	faults(p.Collector, r.String(), t, fs)
	return parsed
}

func (p *mappingParser) optional(r role, t *spec.Text) *Template {
	if t.Value == "" {
		return nil
	}
	return p.template(r, t)
}

// role is what a template makes.
type role uint8

const (
	roleKey role = iota
	roleField
	roleMember
	roleScore
	roleValue
	roleChannel
	roleMessage
	roleStream
)

// String returns the role for a sentence.
func (r role) String() string {
	return [...]string{"key", "field", "member", "score", "value", "channel", "message", "stream"}[r]
}

// most is the most bytes that a template of the role makes.
func (r role) most() int {
	if r == roleValue {
		return MaxValue
	}
	return MaxKey
}

// holdsJSON reports whether the text of a JSON column may be a part of what the template makes.
func (r role) holdsJSON() bool { return r == roleValue || r == roleMessage }
