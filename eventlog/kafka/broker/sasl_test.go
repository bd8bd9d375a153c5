package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/freshet/freshet/credential"
)

// secret is a password that no other text has.
const secret = "Tr0ub4dor"

func TestThePasswordIsPrintedNowhere(t *testing.T) {
	for _, name := range []string{"plain", "scram-sha-256", "SCRAM-SHA-512"} {
		m, err := NewLogin(name, "freshet", credential.Text(secret))
		must(t, err)
		var logged bytes.Buffer
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("m", "mechanism", m, "options", Options{Login: m})
		slog.New(slog.NewTextHandler(&logged, nil)).Info("m", "mechanism", m, "options", Options{Login: m})
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			fmt.Fprintf(&logged, verb, m)
			fmt.Fprintf(&logged, verb, Options{Login: m})
		}
		if strings.Contains(logged.String(), secret) || strings.Contains(logged.String(), fmt.Sprintf("%x", secret)) {
			t.Errorf("%s: the password is in %s", name, logged.String())
		}
		if !strings.Contains(logged.String(), "freshet") {
			t.Errorf("%s: the user is not in %s", name, logged.String())
		}
	}
}

func TestAPasswordThatSCRAMCannotSendIsNotInTheError(t *testing.T) {
	_, err := NewLogin("scram-sha-256", "freshet", credential.Text(secret+"\x07"))
	if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "freshet") {
		t.Fatalf("%v", err)
	}
}

func TestNobodyLogsInWithoutAMechanism(t *testing.T) {
	for _, name := range []string{"", "none"} {
		if m, err := NewLogin(name, "", nil); m != nil || err != nil {
			t.Errorf("%q: %v, %v", name, m, err)
		}
	}
	if _, err := NewLogin("gssapi", "u", credential.Text(secret)); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("gssapi: %v", err)
	}
}
