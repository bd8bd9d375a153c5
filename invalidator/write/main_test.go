package write

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The model plays the same worlds in every run, and others in a soak: about one in 3,000, with a request that reaches Redis
// 20 s after it was sent, ends with an older value (docs/guarantees.md, "Known, and not answered yet").
func TestMain(m *testing.M) {
	if os.Getenv("FRESHET_SOAK") == "" {
		_ = flag.Set("rapid.seed", "1") // it is there: rapid is imported
	}
	goleak.VerifyTestMain(m)
}
