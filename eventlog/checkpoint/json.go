package checkpoint

import (
	"encoding/base64"
	"encoding/json"
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

// MarshalJSON implements [json.Marshaler]. A text that needs many escapes is longer than base64 and no better to read.
func (t Text) MarshalJSON() ([]byte, error) {
	const wrapping = len(`{"base64":""}`)
	if utf8.ValidString(string(t)) {
		text, err := json.Marshal(string(t))
		if err != nil || len(text) <= base64.StdEncoding.EncodedLen(len(t))+wrapping {
			return text, err
		}
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

// Action is an action in JSON by its name.
type Action event.Action

// MarshalText implements [encoding.TextMarshaler]. It refuses what UnmarshalText would.
func (a Action) MarshalText() ([]byte, error) {
	name := event.Action(a).String()
	_, err := event.ParseAction(name)
	return []byte(name), err
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Action) UnmarshalText(b []byte) error {
	known, err := event.ParseAction(string(b))
	*a = Action(known)
	return err
}

// PositionJSON is an [event.Position] in JSON, but for its State, which is kept apart: it is large and seldom changes.
type PositionJSON struct {
	Flavor    event.Flavor `json:"flavor"`
	Server    string       `json:"server"`
	Epoch     uint32       `json:"epoch"`
	File      string       `json:"file"`
	Pos       uint64       `json:"pos"`
	GTIDs     string       `json:"gtids"`
	Committed time.Time    `json:"committed,omitzero"`
}

// PlaceOf returns the place of a position.
func PlaceOf(p *event.Position) PositionJSON {
	return PositionJSON{
		Flavor: p.Flavor, Server: p.Server, Epoch: p.Epoch, File: p.File, Pos: p.Pos, GTIDs: p.GTIDs.String(),
		Committed: p.Committed.UTC(),
	}
}

// Position returns the position at a place, without its State.
func (p *PositionJSON) Position() (event.Position, error) {
	gtids, err := event.ParseGTIDSet(p.Flavor, p.GTIDs)
	if err != nil {
		return event.Position{}, err
	}
	return event.Position{
		Flavor: p.Flavor, Server: p.Server, Epoch: p.Epoch, File: p.File, Pos: p.Pos, GTIDs: gtids, Committed: p.Committed,
	}, nil
}
