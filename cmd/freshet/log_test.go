package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/config"
)

func TestDurationsInTheLogHaveAUnit(t *testing.T) {
	t.Parallel()
	for _, format := range []config.LogFormat{config.LogJSON, config.LogText} {
		var out bytes.Buffer
		c := &cli{stderr: &out}
		c.logger(config.Log{Format: format}).Info("kafka answers again", "after", 1234567*time.Microsecond)
		if !strings.Contains(out.String(), "1.235s") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
