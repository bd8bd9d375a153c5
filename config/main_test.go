package config

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/config/spec"
)

func TestMain(m *testing.M) {
	// The tests' configuration comes from the tests alone.
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "FRESHET_") {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	goleak.VerifyTestMain(m)
}

// minimal is the least that loads.
const minimal = `source:
  addresses: ["127.0.0.1:3306"]
  user: freshet
redis:
  addresses: ["127.0.0.1:6379"]
mappings:
  - table: shop.product
    keys: ["product:{id}"]
`

func mustParse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse("freshet.yaml", []byte(text))
	if err != nil {
		t.Fatalf("loading:\n%s\n%v", text, err)
	}
	return c
}

// parseAnyway returns what a check is given, also of a configuration that has problems.
func parseAnyway(t testing.TB, text string) (c *Config, err error) {
	t.Helper()
	_, err = Parse("freshet.yaml", []byte(text), func(seen *Config) spec.Problems { c = seen; return nil })
	if c == nil {
		t.Fatalf("no check was called: %v", err)
	}
	return c, err
}
