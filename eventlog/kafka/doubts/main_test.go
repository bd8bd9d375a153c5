package doubts

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }
