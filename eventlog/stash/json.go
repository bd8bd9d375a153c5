package stash

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
)

// Keys are stashed keys in JSON: runs of keys that have all but their fields in common. What a plain delete has not is
// left out.
type Keys []Key

type keyRun struct {
	Table     string            `json:"table"`
	Mapping   int               `json:"mapping"`
	D         checkpoint.Span   `json:"d"`
	RateLimit int               `json:"rate_limit,omitempty"`
	Action    checkpoint.Action `json:"action"`
	Intent    intent            `json:"intent,omitzero"`
	Effect    *effect           `json:"effect,omitempty"`
	Unknown   bool              `json:"unknown,omitempty"`
	Keys      []checkpoint.Text `json:"keys"`
	// Fields are those of each key, in their order, NULL as null; left out when no key has any.
	Fields [][]*checkpoint.Text `json:"fields,omitempty"`

	of *event.Effect // the same as Effect
}

func (r *keyRun) like(o *keyRun) bool {
	return r.Table == o.Table && r.Mapping == o.Mapping && r.D == o.D && r.RateLimit == o.RateLimit &&
		r.Action == o.Action &&
		r.Intent == o.Intent && r.of == o.of && r.Unknown == o.Unknown && (r.Fields == nil) == (o.Fields == nil)
}

// intent is an intent in JSON by its name.
type intent event.Intent

// MarshalText implements [encoding.TextMarshaler]. It refuses what UnmarshalText would.
func (i intent) MarshalText() ([]byte, error) {
	name := event.Intent(i).String()
	_, err := event.ParseIntent(name)
	return []byte(name), err
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (i *intent) UnmarshalText(b []byte) error {
	known, err := event.ParseIntent(string(b))
	*i = intent(known)
	return err
}

// form is a form in JSON by its name.
type form event.Form

// MarshalText implements [encoding.TextMarshaler]. It refuses what UnmarshalText would.
func (f form) MarshalText() ([]byte, error) {
	name := event.Form(f).String()
	_, err := event.ParseForm(name)
	return []byte(name), err
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (f *form) UnmarshalText(b []byte) error {
	known, err := event.ParseForm(string(b))
	*f = form(known)
	return err
}

// effect is an [event.Effect] in JSON.
type effect struct {
	Publish      bool            `json:"publish,omitempty"`
	Stream       bool            `json:"stream,omitempty"`
	MaxLen       int64           `json:"maxlen,omitempty"`
	As           form            `json:"as,omitzero"`
	Query        string          `json:"query,omitempty"`
	TTL          checkpoint.Span `json:"ttl,omitzero"`
	Jitter       float64         `json:"jitter,omitempty"`
	ExpireAt     checkpoint.Span `json:"expire_at,omitzero"`
	Missing      bool            `json:"missing,omitempty"`
	MissingValue checkpoint.Text `json:"missing_value,omitzero"`
	MissingTTL   checkpoint.Span `json:"missing_ttl,omitzero"`
	In           checkpoint.Span `json:"in,omitzero"`
}

func effectOf(e *event.Effect) *effect {
	if e == nil {
		return nil
	}
	return &effect{
		Publish: e.Publish, Stream: e.Stream, MaxLen: e.MaxLen, As: form(e.As), Query: e.Query, TTL: checkpoint.Span(e.TTL),
		Jitter:   e.Jitter,
		ExpireAt: checkpoint.Span(e.ExpireAt), Missing: e.Missing, MissingValue: checkpoint.Text(e.MissingValue),
		MissingTTL: checkpoint.Span(e.MissingTTL), In: checkpoint.Span(e.In),
	}
}

func (e *effect) effect() *event.Effect {
	if e == nil {
		return nil
	}
	return &event.Effect{
		Publish: e.Publish, Stream: e.Stream, MaxLen: e.MaxLen, As: event.Form(e.As), Query: e.Query,
		TTL:    time.Duration(e.TTL),
		Jitter: e.Jitter, ExpireAt: time.Duration(e.ExpireAt), Missing: e.Missing, MissingValue: string(e.MissingValue),
		MissingTTL: time.Duration(e.MissingTTL), In: time.Duration(e.In),
	}
}

// MarshalJSON implements [json.Marshaler].
func (ks Keys) MarshalJSON() ([]byte, error) {
	var runs []keyRun
	for i := range ks {
		k := &ks[i]
		r := keyRun{
			Table: k.Table, Mapping: k.Mapping, D: checkpoint.Span(k.D), RateLimit: k.RateLimit,
			Action: checkpoint.Action(k.Action), Intent: intent(k.Intent), of: k.Effect,
			Unknown: k.Unknown,
		}
		if len(k.Fields) > 0 {
			r.Fields = [][]*checkpoint.Text{}
		}
		if n := len(runs); n == 0 || !runs[n-1].like(&r) {
			r.Effect = effectOf(k.Effect)
			runs = append(runs, r)
		}
		last := &runs[len(runs)-1]
		last.Keys = append(last.Keys, checkpoint.Text(k.Key))
		if r.Fields == nil {
			continue
		}
		all, err := k.Fields.All()
		if err != nil {
			return nil, fmt.Errorf("a key of %s: %w", k.Table, err)
		}
		texts := make([]*checkpoint.Text, len(all))
		for i, f := range all {
			if f != nil {
				text := checkpoint.Text(f)
				texts[i] = &text
			}
		}
		last.Fields = append(last.Fields, texts)
	}
	return json.Marshal(runs)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (ks *Keys) UnmarshalJSON(b []byte) error {
	var runs []keyRun
	if err := json.Unmarshal(b, &runs); err != nil {
		return err
	}
	*ks = nil
	for i := range runs {
		r := &runs[i]
		if r.Action == 0 {
			return errors.New("keys without an action")
		}
		if len(r.Fields) > 0 && len(r.Fields) != len(r.Keys) {
			return fmt.Errorf("%d keys with the fields of %d", len(r.Keys), len(r.Fields))
		}
		of := r.Effect.effect()
		for n, k := range r.Keys {
			s := Key{
				Key: string(k), Table: r.Table, Mapping: r.Mapping, D: time.Duration(r.D), RateLimit: r.RateLimit,
				Action: event.Action(r.Action), Intent: event.Intent(r.Intent), Effect: of,
				Unknown: r.Unknown,
			}
			if len(r.Fields) > 0 {
				for _, f := range r.Fields[n] {
					if f == nil {
						s.Fields = event.AppendNull(s.Fields)
					} else {
						s.Fields = event.AppendField(s.Fields, string(*f))
					}
				}
			}
			*ks = append(*ks, s)
		}
	}
	return nil
}
