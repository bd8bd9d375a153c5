package invalidator

import dto "github.com/prometheus/client_model/go"

// Acknowledged returns how many deletes of a key Redis has acknowledged since the engine was made: first, final and
// later ones. It may be called by any goroutine.
func (e *Engine) Acknowledged() uint64 {
	n := 0.0
	for _, c := range e.metrics.acked {
		var m dto.Metric
		_ = c.Write(&m) // a counter's Write cannot fail
		n += m.GetCounter().GetValue()
	}
	return uint64(n)
}
