package group

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
