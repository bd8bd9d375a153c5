package checkpoint

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
)

// Text is a string of any bytes in JSON. JSON strings hold UTF-8 only and would silently change others, so that another
// key would be deleted: those are written as {"base64": "..."}.
type Text string

type encodedText struct {
	Base64 string `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(encodedText{base64.StdEncoding.EncodeToString([]byte(t))})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var e encodedText
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		raw, err := base64.StdEncoding.DecodeString(e.Base64)
		*t = Text(raw)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// Span is a duration in JSON as Go writes it: 2s.
type Span time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Span) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = Span(d)
	return err
}

// Version is a version in JSON as it prints itself.
type Version event.Version

// MarshalText implements [encoding.TextMarshaler].
func (v Version) MarshalText() ([]byte, error) { return []byte(event.Version(v).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (v *Version) UnmarshalText(b []byte) error {
	p, err := event.ParseVersion(string(b))
	*v = Version(p)
	return err
}

// Action is an action in JSON by its name.
type Action event.Action

// MarshalText implements [encoding.TextMarshaler]. It refuses what UnmarshalText would.
func (a Action) MarshalText() ([]byte, error) {
	name := []byte(event.Action(a).String())
	var known Action
	return name, known.UnmarshalText(name)
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Action) UnmarshalText(b []byte) error {
	for known := event.ActionDelete; known <= event.ActionDelete; known++ {
		if known.String() == string(b) {
			*a = Action(known)
			return nil
		}
	}
	return fmt.Errorf("action %q is not known", b)
}

// Place is an [event.Position] in JSON, but for its State, which is kept apart: it is large and seldom changes.
type Place struct {
	Flavor    event.Flavor `json:"flavor"`
	Server    string       `json:"server"`
	Epoch     uint32       `json:"epoch"`
	File      string       `json:"file"`
	Pos       uint64       `json:"pos"`
	GTIDs     string       `json:"gtids"`
	Committed time.Time    `json:"committed,omitzero"`
}

// PlaceOf returns the place of a position.
func PlaceOf(p *event.Position) Place {
	return Place{
		Flavor: p.Flavor, Server: p.Server, Epoch: p.Epoch, File: p.File, Pos: p.Pos, GTIDs: p.GTIDs.String(),
		Committed: p.Committed.UTC(),
	}
}

// Position returns the position at a place, without its State.
func (p *Place) Position() (event.Position, error) {
	gtids, err := event.ParseGTIDSet(p.Flavor, p.GTIDs)
	if err != nil {
		return event.Position{}, err
	}
	return event.Position{
		Flavor: p.Flavor, Server: p.Server, Epoch: p.Epoch, File: p.File, Pos: p.Pos, GTIDs: gtids, Committed: p.Committed,
	}, nil
}

// Keys are stashed keys in JSON: runs of keys that have all else in common.
type Keys []Stashed

type keyRun struct {
	Table   string `json:"table"`
	Mapping int    `json:"mapping"`
	D       Span   `json:"d"`
	Action  Action `json:"action"`
	Keys    []Text `json:"keys"`
}

func (r *keyRun) like(o *keyRun) bool {
	return r.Table == o.Table && r.Mapping == o.Mapping && r.D == o.D && r.Action == o.Action
}

// MarshalJSON implements [json.Marshaler].
func (ks Keys) MarshalJSON() ([]byte, error) {
	var runs []keyRun
	for i := range ks {
		k := &ks[i]
		r := keyRun{Table: k.Table, Mapping: k.Mapping, D: Span(k.D), Action: Action(k.Action)}
		if n := len(runs); n == 0 || !runs[n-1].like(&r) {
			runs = append(runs, r)
		}
		last := &runs[len(runs)-1]
		last.Keys = append(last.Keys, Text(k.Key))
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
		for _, k := range r.Keys {
			*ks = append(*ks, Stashed{
				Key: string(k), Table: r.Table, Mapping: r.Mapping, D: time.Duration(r.D), Action: event.Action(r.Action),
			})
		}
	}
	return nil
}
