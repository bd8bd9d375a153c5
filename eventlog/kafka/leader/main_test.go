package leader

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) {
	if topic := os.Getenv(envHelper); topic != "" {
		if err := help(topic); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(testbed.WithKafka(m))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
