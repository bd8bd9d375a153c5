package docs

import (
	"regexp"
	"strings"
	"testing"
)

// skips is how a test leaves itself out.
var skips = regexp.MustCompile(`\.Skip(f|Now)?\(`)

// A test that left itself out looks as if it had passed. What it needs is installed, or it fails. Only the strikes of
// chance leave out what somebody has not asked for.
func TestNoTestSkipsItself(t *testing.T) {
	for name, code := range files(t, "_test.go") {
		if name == "cmd/freshet/strikes_test.go" || name == "docs/skips_test.go" {
			continue
		}
		for n, line := range strings.Split(code, "\n") {
			if skips.MatchString(line) {
				t.Errorf("%s:%d: %s", name, n+1, strings.TrimSpace(line))
			}
		}
	}
}
