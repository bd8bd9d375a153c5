package canal

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
)

// segments is a connection that has some bytes at a time.
type segments struct {
	r     io.Reader
	n     int
	ready bool
}

func (h *segments) Read(b []byte) (int, error) {
	if h.ready = !h.ready; h.ready {
		return 0, errWouldWait
	}
	return h.r.Read(b[:min(h.n, len(b))])
}

func TestALargeEventThatArrivesSlowlyTakesItsMemoryOnce(t *testing.T) {
	const big = 10 << 20
	list := [][]byte{ev(big, 1)}
	for range 300 {
		list = append(list, ev(50, 3))
	}
	first := packets(list...)
	second := packets(append(list, ev(big, 2))...)[len(first):]
	s := testStream(io.MultiReader(bytes.NewReader(first), &segments{r: bytes.NewReader(second), n: 1460}))
	for range list {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	for {
		e, err := s.next()
		if err == errWouldWait {
			continue
		}
		if err != nil || len(e) != big {
			t.Fatal(err, len(e))
		}
		break
	}
	runtime.ReadMemStats(&b)
	if n := b.TotalAlloc - a.TotalAlloc; n > 3*big {
		t.Errorf("an event of %d bytes took %d", big, n)
	}
}

// repeated is a stream of the same event, many times.
type repeated struct {
	ev   []byte
	pos  uint64
	left int
	seq  byte
	buf  []byte
}

func (r *repeated) Read(b []byte) (int, error) {
	if len(r.buf) == 0 {
		if r.left == 0 {
			return 0, errWouldWait
		}
		r.left--
		e := rawEvent(r.pos, binlog.TypeAppendBlock, 0, r.ev...)
		r.pos += uint64(len(e))
		p := append([]byte{0}, e...)
		r.buf = append([]byte{byte(len(p)), byte(len(p) >> 8), byte(len(p) >> 16), r.seq}, p...)
		r.seq++
	}
	n := copy(b, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

// The file of a LOAD DATA statement is in events that make no step.
func TestEventsThatMakeNoStepDoNotHoldUpWhatWasReadBefore(t *testing.T) {
	l, _ := fed(t)
	src := &repeated{ev: make([]byte, 32<<10), pos: 4, left: 1000}
	l.dump = &dump{events: testStream(src), alive: true}
	l.tx.open, l.fresh = true, false
	l.step.Kind, l.step.Size = nothing, 0
	if err := l.next(); err != nil {
		t.Fatal(err)
	}
	if l.step.Kind != Idle || l.step.Size > 2*mostQuiet {
		t.Errorf("a step of kind %d after %d bytes", l.step.Kind, l.step.Size)
	}
}
