package embedded

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// errDisk is what a full disk says.
var errDisk = errors.New("no space left on device")

// faults lets writes fail, before or after they take effect.
type faults struct {
	mu     sync.Mutex
	before func(op string) error // nil, or decides: an error means that the write is not made
	after  func(op string) error // the write is made, and its reply is this error
	writes int
}

func (f *faults) write(op string, write func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if f.before != nil {
		if err := f.before(op); err != nil {
			return err
		}
	}
	err := write()
	if err == nil && f.after != nil {
		return f.after(op)
	}
	return err
}

// count returns how many writes were tried since it was last asked.
func (f *faults) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.writes
	f.writes = 0
	return n
}

// set changes the faults while a saver runs.
func (f *faults) set(before, after func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func failing(string) error { return errDisk }

func TestASaveWhoseReplyIsLostIsRepeated(t *testing.T) {
	var f faults
	s := open(t, t.TempDir(), Options{Write: f.write})
	c := s.Checkpoint()
	f.after = failing
	if err := c.Begin(position(t, 4)); !errors.Is(err, errDisk) {
		t.Fatalf("begin: %v", err)
	}
	if p := c.Position(); !p.IsZero() {
		t.Errorf("a position that is not known to be on disk counts as durable: %s", p.String())
	}
	f.after = nil
	must(t, c.Begin(position(t, 5))) // nothing was read since, so a later one may replace it

	c.Advance(event.End{File: "binlog.000001", Pos: 6, State: []byte("tables")})
	f.after = failing
	if err := c.Save(); !errors.Is(err, errDisk) {
		t.Fatalf("save: %v", err)
	}
	if p := c.Durable(); p.Pos != 5 {
		t.Errorf("the durable position is %s", p.String())
	}
	f.after = nil
	must(t, c.Save()) // without any change: the failed save left it to do
	if p := c.Durable(); p.Pos != 6 {
		t.Errorf("the durable position is %s", p.String())
	}
	if p := reopen(t, s).Checkpoint().Position(); p.Pos != 6 || !bytes.Equal(p.State, []byte("tables")) {
		t.Errorf("on disk there is %s with state %q", p.String(), p.State)
	}
}

// runSaver starts a saver in a bubble; stop closes its channel and returns what Run returned.
func runSaver(ctx context.Context, c *Checkpoint, o SaverOptions) (ends chan event.End, done chan error) {
	ends, done = make(chan event.End), make(chan error, 1)
	go func() { done <- c.Run(ctx, ends, o) }()
	return ends, done
}

func TestTheSaverSavesAtOnceAndThenNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s := open(t, t.TempDir(), Options{Write: f.write})
		defer s.Close()
		c := s.Checkpoint()
		must(t, c.Begin(position(t, 4)))
		f.count()
		ends, done := runSaver(t.Context(), c, SaverOptions{})

		ends <- event.End{File: "binlog.000001", Pos: 5}
		synctest.Wait()
		if p := c.Durable(); p.Pos != 5 {
			t.Errorf("after a pause the first end is not saved at once: %s", p.String())
		}
		for n := range uint64(1000) { // a second of one end a millisecond
			ends <- event.End{File: "binlog.000001", Pos: 6 + n}
			time.Sleep(time.Millisecond)
		}
		if n := f.count(); n < 5 || n > 7 {
			t.Errorf("%d saves in one second, want about five", n)
		}
		time.Sleep(DefaultSaveEvery)
		synctest.Wait()
		if p := c.Durable(); p.Pos != 1005 {
			t.Errorf("a while later the durable position is %s", p.String())
		}
		ends <- event.End{File: "binlog.000001", Pos: 2000}
		ends <- event.End{File: "binlog.000001", Pos: 2001}
		close(ends)
		must(t, <-done)
		if p := c.Durable(); p.Pos != 2001 {
			t.Errorf("at the end the durable position is %s", p.String())
		}
	})
}

func TestTheSaverTriesForEverAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s := open(t, t.TempDir(), Options{Write: f.write})
		defer s.Close()
		c := s.Checkpoint()
		must(t, c.Begin(position(t, 4)))
		attempts, failed, recovered := 0, 0, 0
		ends, done := runSaver(t.Context(), c, SaverOptions{
			Reporter: &retry.Reporter{
				Failed: func(error) { failed++ }, Recovered: func(time.Duration) { recovered++ },
				Kind: func(err error) (string, bool) { attempts++; return err.Error(), true },
			},
		})
		f.set(failing, nil)
		ends <- event.End{File: "binlog.000001", Pos: 5}
		time.Sleep(time.Hour)
		for n := range uint64(100) { // ends are taken all the same
			ends <- event.End{File: "binlog.000001", Pos: 6 + n}
		}
		synctest.Wait()
		if attempts < 3600/5 || failed < 50 || failed > 60 || recovered != 0 {
			t.Errorf("in one hour %d saves failed, which was said %d times, and %d came good", attempts, failed, recovered)
		}
		if p := c.Durable(); p.Pos != 4 {
			t.Errorf("the durable position moved to %s", p.String())
		}
		f.set(nil, nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if p := c.Durable(); p.Pos != 105 || recovered != 1 {
			t.Errorf("with room again the durable position is %s, recovered %d times", p.String(), recovered)
		}
		f.set(failing, nil) // also while it finishes
		ends <- event.End{File: "binlog.000001", Pos: 200}
		close(ends)
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Errorf("it gave up: %v", err)
		default:
		}
		f.set(nil, nil)
		must(t, <-done)
		if p := c.Durable(); p.Pos != 200 {
			t.Errorf("at the end the durable position is %s", p.String())
		}
	})
}

func TestTheSaverSavesOnceMoreWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s := open(t, t.TempDir(), Options{Write: f.write})
		defer s.Close()
		c := s.Checkpoint()
		must(t, c.Begin(position(t, 4)))
		ends := make(chan event.End, 2)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for n := range uint64(20) { // select takes either first
			ends <- event.End{File: "binlog.000001", Pos: 2*n + 5}
			ends <- event.End{File: "binlog.000001", Pos: 2*n + 6}
			must(t, c.Run(ctx, ends, SaverOptions{}))
			if p := c.Durable(); p.Pos != 2*n+6 {
				t.Errorf("the durable position is %s, want %d", p.String(), 2*n+6)
			}
		}
		f.set(failing, nil)
		ends <- event.End{File: "binlog.000001", Pos: 100}
		if err := c.Run(ctx, ends, SaverOptions{}); !errors.Is(err, errDisk) {
			t.Errorf("a last save that failed: %v", err)
		}
		closed := make(chan event.End)
		close(closed)
		attempts := 0
		f.set(func(string) error { attempts++; return errDisk }, nil)
		for range 20 { // select takes either first
			attempts = 0
			if err := c.Run(ctx, closed, SaverOptions{}); !errors.Is(err, errDisk) || attempts != 1 {
				t.Fatalf("a last save that failed %d times, with the channel closed: %v: each may take long, and there is no time",
					attempts, err)
			}
		}
	})
}

func TestSavesAndAdvancesMayRace(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	s.db.NoSync = true
	c := s.Checkpoint()
	p := position(t, 4)
	p.GTIDs = gtids(t, event.MySQL, uuid+":1-4")
	must(t, c.Begin(p))
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := c.Save(); err != nil {
						t.Errorf("save: %v", err)
					}
					d, cur := c.Durable(), c.Current()
					if ahead := d.GTIDs.Subtract(&cur.GTIDs); !ahead.IsEmpty() {
						t.Errorf("the durable position is ahead by %s", ahead.String())
					}
				}
			}
		})
	}
	for n := range uint64(500) {
		c.Advance(end(t, n+5))
	}
	close(stop)
	group.Wait()
	must(t, c.Save())
	if got := reopen(t, s).Checkpoint().Position(); got.GTIDs.String() != uuid+":1-504" {
		t.Errorf("on disk there is %s", got.String())
	}
}
