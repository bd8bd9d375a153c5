package main

import (
	"fmt"
	"testing"
	"time"
)

func TestARedoAtTheDefaultRateLastsLongerThanTheLiveTransactions(t *testing.T) {
	for _, scale := range []float64{0.001, 0.05, 1, 3} {
		t.Run(fmt.Sprint(scale), func(t *testing.T) {
			b := &benchmark{scale: scale, workload: fullWorkload.scaled(scale)}
			s, slow := b.setBacks()
			live := warmUp + b.livePace().length
			if lasts := time.Duration(slow.changes) * time.Second / defaultRate; lasts <= live {
				t.Errorf("the redo takes %s, the transactions %s", lasts, live)
			}
			if s.spared <= b.livePace().transactions() || s.spared >= s.rows || s.changed() <= 0 {
				t.Errorf("of %d rows %d are spared and %d changed, for %d transactions", s.rows, s.spared, s.changed(),
					b.livePace().transactions())
			}
		})
	}
}
