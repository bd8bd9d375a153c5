package spec

import (
	"strings"
	"testing"
)

func TestTheNearestKeyIsWhatWasMeant(t *testing.T) {
	candidates := []string{"name", "addresses", "user", "password", "server_id", "db", "tls"}
	for name, want := range map[string]string{
		"adresses": "addresses", "addr": "addresses", "address": "addresses", "ADDRESSES": "addresses",
		"serverId": "server_id", "server-id": "server_id",
		"passwrod": "password", "pass": "password", "usr": "user", "usre": "user", "bd": "db", "ssl": "", "": "", "-": "",
		"colour": "", "x": "",
		strings.Repeat("a", 100): "", strings.Repeat("password", 10): "password",
	} {
		if got := Nearest(name, candidates); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestASuggestionIsNear(t *testing.T) {
	names := []string{"lower", "upper", "urlencode", "base64"}
	for name, want := range map[string]string{
		"lwoer": "lower", "LOWER": "lower", "low": "lower", "lower_case": "lower", "uper": "upper", "url_encode": "urlencode",
		"base": "base64", "sha512": "", "x": "", "": "", strings.Repeat("lower", 40): "",
	} {
		if got := Nearest(name, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
