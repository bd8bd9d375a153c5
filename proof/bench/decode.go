package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/router"
)

// decodeSections are decoding and routing alone: freshet's canal and router with a reader that builds batches as
// freshet's does and drops them, and compares that with dumps that look at nothing.
//
// What freshet knows of the tables at the beginning of each reel is found out once and kept, as in a checkpoint: only a
// first start from an old position has to find it out.
func (b *benchmark) decodeSections() []*section {
	s := &studio{}
	var all []*section
	for _, r := range s.reels(b.workload) {
		all = append(all, &section{
			name: r.name, title: "decode and route only, compared with a dump: " + r.what,
			setup:      func(ctx context.Context, b *benchmark) error { return s.prepare(ctx, b, r) },
			contenders: []*contender{s.packetsDropped(r), s.mysqlbinlog(r), s.freshet(r)},
		})
	}
	return all
}

const packetsDropped, rawCopy = "packets read and dropped", "mysqlbinlog --raw"

func (s *studio) packetsDropped(r *reel) *contender {
	return &contender{name: packetsDropped, run: func(ctx context.Context, _ *benchmark) ([]measure, error) {
		before := ownCPU()
		rate, err := r.passes(func() (time.Duration, error) { return discardFile(ctx, s.server, r.file) })
		return []measure{{name: "rows/s", value: rate}, r.cpu(ownCPU()-before, "")}, err
	}}
}

func (s *studio) mysqlbinlog(r *reel) *contender {
	return &contender{name: rawCopy, run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		rate, err := r.passes(func() (time.Duration, error) { return s.copyFile(ctx, b.dir, r) })
		return []measure{{name: "rows/s", value: rate}}, err
	}}
}

func (s *studio) freshet(r *reel) *contender {
	return &contender{name: "freshet, decode and route", run: func(ctx context.Context, _ *benchmark) ([]measure, error) {
		before := ownCPU()
		rate, err := r.passes(func() (time.Duration, error) { return s.decode(ctx, r) })
		return []measure{
			{name: "rows/s", value: rate, of: packetsDropped, goal: r.goal},
			{name: "rows/s", value: rate, of: rawCopy, goal: r.goal},
			r.cpu(ownCPU()-before, packetsDropped),
		}, err
	}}
}

// passes is how often a run reads its reel, which alone is read in no time.
const passes = 5

// passes has the reel read so often, and returns the rows per second.
func (r *reel) passes(read func() (time.Duration, error)) (float64, error) {
	var sum time.Duration
	for range passes {
		took, err := read()
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return float64(passes*r.rows) / sum.Seconds(), nil
}

func (r *reel) cpu(used time.Duration, of string) measure {
	return measure{name: "CPU s/M rows", value: used.Seconds() / float64(passes*r.rows) * 1e6, of: of}
}

// copyFile has mysqlbinlog write the reel to a file, and returns how long that took with the start of the program.
func (s *studio) copyFile(ctx context.Context, dir string, r *reel) (time.Duration, error) {
	argv, err := testbed.MySQLBinlog(ctx)
	if err != nil {
		return 0, err
	}
	if dir, err = os.MkdirTemp(dir, "raw"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	argv = append(argv, "--no-defaults", "--read-from-remote-server", "--host=127.0.0.1", "--port="+
		strconv.Itoa(s.server.Port),
		"--user="+s.server.User, "--raw", "--result-file="+dir+"/", r.file)
	start := time.Now()
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("mysqlbinlog: %w\n%s", err, out)
	}
	took := time.Since(start)
	fi, err := os.Stat(filepath.Join(dir, r.file))
	if err != nil {
		return 0, err
	}
	if size := uint64(fi.Size()); size < r.end {
		return 0, fmt.Errorf("%w: %s has %d bytes, and its copy has %d", errInvalid, r.file, r.end, size)
	}
	return took, nil
}

// decode has a canal of its own read the reel, and returns how long that took from the first event to the last.
func (s *studio) decode(ctx context.Context, r *reel) (time.Duration, error) {
	runtime.GC() // each run begins as a process of its own would
	d, err := newDropper(s.server.Addr, r)
	if err != nil {
		return 0, err
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { d.canal.Watch(watching, func(event.Mark) {}) })
	err = d.read(ctx)
	d.canal.Close()
	stop()
	watch.Wait()
	if err != nil {
		return 0, fmt.Errorf("%s was not read to its end %d: %w", r.file, r.end, err)
	}
	took := time.Since(d.canal.Stats().FirstByte)
	if want := r.mapped(); d.rows != want || d.keys != want {
		return 0, fmt.Errorf("%w: %d rows and %d keys of %d", errInvalid, d.rows, d.keys, want)
	}
	return took, nil
}

// mapped is how many of the rows have a key.
func (r *reel) mapped() int {
	if r.unmapped {
		return 0
	}
	return r.rows
}

// The bounds of a batch, as freshet's reader has them.
const (
	dropKeys   = 2000
	dropBytes  = 256 << 10
	dropRanges = 1000
)

// dropper does what freshet's reader does, but for handing the batches to an event log. It is the canal's checkpoint as
// well.
type dropper struct {
	canal   *canal.Canal
	router  *router.Router
	latency *latency.Stages
	reel    *reel
	batch   event.Batch

	rows, keys int
}

func newDropper(address string, r *reel) (*dropper, error) {
	route, err := router.New([]spec.Mapping{{
		Table: spec.Text{Value: "shop.product"}, Keys: []spec.Text{{Value: "product:{id}"}},
	}}, router.Options{})
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	board, err := alarm.New(quiet, prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	d := &dropper{router: route, latency: latency.New(), reel: r}
	d.canal, err = canal.New(canal.Options{
		Address: address, User: "root", Start: r.file + ":4", Wanted: route.Wants, Alarms: board, Logger: quiet,
	}, func(_ context.Context, t *event.Table) ([]event.Need, error) { return route.Bind(t) }, d)
	return d, err
}

func (d *dropper) Position() event.Position { return d.reel.from }

func (d *dropper) Begin(p event.Position) error {
	d.reel.from = p
	return nil
}

func (d *dropper) Move(event.Position) error { return errors.New("the binlog has a gap") }

func (d *dropper) Raise(string, uint32) error { return errors.New("the server is another one") }

// read reads to the end of the reel.
func (d *dropper) read(ctx context.Context) error {
	row := func(c *event.Change) error {
		d.rows++
		d.router.Route(&d.batch, c)
		d.dropIfFull()
		return nil
	}
	for {
		step, err := d.canal.Next(ctx)
		if err != nil {
			return err
		}
		switch step.Kind {
		case canal.Rows:
			if err := step.Each(row); err != nil {
				return err
			}
		case canal.Committed:
			d.batch.End.Add(step.End)
			if step.End.File == d.reel.file && step.End.Pos >= d.reel.end {
				d.drop()
				return nil
			}
			d.dropIfFull()
		case canal.Idle:
			d.router.Publish()
			if d.batch.Len() > 0 || !d.batch.End.IsZero() {
				d.drop()
			}
			d.canal.HandedOver()
		default:
			return errors.New("there is no XA")
		}
	}
}

func (d *dropper) dropIfFull() {
	if d.batch.Len() >= dropKeys || len(d.batch.Text()) >= dropBytes || len(d.batch.End.GTIDs) >= dropRanges {
		d.drop()
	}
}

// drop ends a batch.
func (d *dropper) drop() {
	b := d.batch.Clone()
	d.batch.Reset()
	if b.Len() > 0 {
		b.Age = d.canal.Handover(b.Last)
	}
	b.At = time.Now()
	d.latency.Read.Commits(b, b.At)
	d.keys += b.Len()
}
