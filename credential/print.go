package credential

import (
	"fmt"
	"io"
	"log/slog"
)

// Mask is what a secret looks like everywhere. Its length says nothing.
const Mask = "******"

// String returns the mask, or "" for none.
func (s *Source) String() string {
	if s == nil {
		return ""
	}
	return Mask
}

// Format prints the mask for every verb.
func (s *Source) Format(f fmt.State, verb rune) {
	out := s.String()
	if verb == 'q' || f.Flag('#') {
		out = fmt.Sprintf("%q", out)
	}
	// fmt.State takes no errors: Fprintf reports a failed write itself.
	_, _ = io.WriteString(f, out)
}

// MarshalText returns what String does.
func (s *Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns what String does.
func (s *Source) LogValue() slog.Value { return slog.StringValue(s.String()) }
