package config

import (
	"fmt"
	"io"
	"log/slog"
)

// mask is what a secret looks like everywhere. Its length says nothing.
const mask = "******"

// Secret is a text that is printed by nothing: fmt with any verb, slog, JSON, YAML and text encoders all show
// "******" for it, or "" when it is empty. The zero Secret is empty.
type Secret struct {
	// A pointer, because fmt calls no method on what it reaches through an unexported field of a caller's struct: it
	// prints the address then.
	text *string
}

// NewSecret returns text as a secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the text itself, for the one who sends it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.text == nil }

// String returns "******", or "" for an empty secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return mask
}

// GoString returns what String does, quoted.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format prints the mask for every verb.
func (s Secret) Format(f fmt.State, verb rune) {
	out := s.String()
	if verb == 'q' || f.Flag('#') {
		out = s.GoString()
	}
	// fmt.State takes no errors: Fprintf reports a failed write itself.
	_, _ = io.WriteString(f, out)
}

// MarshalText returns what String does.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns what String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
