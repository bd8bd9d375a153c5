package broker

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }
