package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/retry"
)

// Where the source cannot be read on from the position, on_gap: invalidate has the stream end and another one begin at
// the end of the binlog. All keys are in doubt then, which canal records before it goes on there, and what answers that
// forgets them. What the stream before has handed on is finished in its turn: it is in the log before all that follows.

// stream is a canal, and its metrics.
type stream struct {
	*canal.Canal
	registry *prometheus.Registry
}

const (
	// gapLasts is how long a stream must last for a gap at its end to be a first one.
	gapLasts = 10 * time.Minute
	// gapPause and longestGapPause bound the wait before a gap is passed that came sooner.
	gapPause        = time.Second
	longestGapPause = time.Minute
)

// begin begins a stream: at the checkpoint, or after a gap that ended the one before.
func (r *reading) begin(gap error) (err error) {
	s, o := &stream{registry: prometheus.NewRegistry()}, r.source
	o.Gap, o.Registerer = gap, s.registry
	if s.Canal, err = canal.New(o, r.bind, r.saved); err != nil {
		return err
	}
	r.reader.source = s
	r.stream.Store(s)
	return nil
}

// readStreams reads a stream, and where gaps are passed the next one, until one ends otherwise.
func (r *reading) readStreams(ctx context.Context) error {
	pause := retry.Backoff{Min: gapPause, Max: longestGapPause}
	for passed := false; ; passed = true {
		began := time.Now()
		err := r.readStream(ctx)
		if ctx.Err() != nil || !r.passes(err) {
			return err
		}
		if err := r.reader.leave(ctx); err != nil {
			return failure(ctx, err)
		}
		if time.Since(began) >= gapLasts {
			passed = false
			pause.Reset()
		}
		r.options.Log.Warn("the source cannot be read on from the position", "source", r.config.Source.Name, "error", err)
		if passed && r.wait(ctx, &pause) != nil {
			return nil
		}
		if err := r.begin(err); err != nil {
			return err
		}
	}
}

// wait waits before a gap is passed that came soon after the one before: what it comes from may last.
func (r *reading) wait(ctx context.Context, pause *retry.Backoff) error {
	d := pause.Next()
	r.options.Log.Warn("that is a gap soon after another one: something may be wrong with the source for longer", "source",
		r.config.Source.Name, "wait", d)
	return retry.Sleep(ctx, d)
}

// readStream reads the stream to its end.
func (r *reading) readStream(ctx context.Context) error {
	s := r.stream.Load()
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.Watch(watching, r.reader.mark) })
	err := r.reader.run(ctx)
	s.Close()
	stop()
	watch.Wait()
	return err
}

// passes reports whether reading goes on after what has ended the stream. A first start that cannot begin where it is
// told to is no gap.
func (r *reading) passes(err error) bool {
	at := r.saved.Durable()
	return r.config.OnGap == config.GapInvalidate && canal.IsGap(err) && !at.IsZero()
}

// stats are those of the stream.
func (r *reading) stats() canal.Stats { return r.stream.Load().Stats() }

// metrics are those of the reading and its stream.
func (r *reading) metrics() prometheus.Gatherers {
	return prometheus.Gatherers{r.registry, r.stream.Load().registry}
}
