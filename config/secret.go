package config

import (
	"fmt"
	"log/slog"

	"github.com/freshet/freshet/credential"
)

// Secret is a text, or where it is read from at each login. It is printed by nothing: fmt with any verb, slog, JSON,
// YAML and text encoders all show "******" for it, or "" when there is none. The zero Secret is none.
type Secret struct {
	// A pointer, because fmt calls no method on what it reaches through an unexported field of a caller's struct: it
	// prints the address then.
	from *credential.Source
}

// mask is what a secret looks like everywhere.
const mask = credential.Mask

// NewSecret returns text as a secret.
func NewSecret(text string) Secret { return Secret{credential.Text(text)} }

// Source returns where the secret is read from at each login, nil for none. Whatever logs in with the same secret
// shares it.
func (s Secret) Source() *credential.Source { return s.from }

// Reveal returns the text itself, for the one who sends it; "" for a secret that is read at each login.
func (s Secret) Reveal() string { return s.from.Reveal() }

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.from == nil }

// String returns "******", or "" for none.
func (s Secret) String() string { return s.from.String() }

// GoString returns what String does, quoted.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format prints the mask for every verb.
func (s Secret) Format(f fmt.State, verb rune) { s.from.Format(f, verb) }

// MarshalText returns what String does.
func (s Secret) MarshalText() ([]byte, error) { return s.from.MarshalText() }

// LogValue returns what String does.
func (s Secret) LogValue() slog.Value { return s.from.LogValue() }
