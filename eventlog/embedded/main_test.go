package embedded

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envHelper); dir != "" {
		os.Exit(help(os.Getenv(envTask), dir))
	}
	goleak.VerifyTestMain(m)
}
