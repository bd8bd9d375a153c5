package canal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// packets frames payloads as the server does.
func packets(payloads ...[]byte) []byte {
	var b []byte
	seq := byte(0)
	for _, p := range payloads {
		for {
			n := min(len(p), fullPacket)
			b = append(b, byte(n), byte(n>>8), byte(n>>16), seq)
			b = append(b, p[:n]...)
			seq++
			p = p[n:]
			if n < fullPacket {
				break
			}
		}
	}
	return b
}

func ev(n int, c byte) []byte { return append([]byte{0}, bytes.Repeat([]byte{c}, n)...) }

func testStream(r io.Reader) *stream {
	return &stream{
		r: r, buf: make([]byte, streamBuffer),
		fail: func(p []byte) error { return fmt.Errorf("refused: %s", p[1:]) },
	}
}

func TestEventsOfAnySizeComeOutWhole(t *testing.T) {
	sizes := []int{
		0, 1, 19, 100, streamBuffer - 5, streamBuffer - 4, streamBuffer, 3 * streamBuffer, 7, fullPacket - 2,
		fullPacket - 1, fullPacket + 17, 23,
	}
	var all [][]byte
	for i, n := range sizes {
		all = append(all, ev(n, byte(i+1)))
	}
	wire := packets(all...)
	for name, r := range map[string]io.Reader{
		"at once":   bytes.NewReader(wire),
		"in halves": iotest.HalfReader(bytes.NewReader(wire)),
	} {
		s := testStream(r)
		for i, n := range sizes {
			e, err := s.next()
			if err != nil {
				t.Fatalf("%s: event %d of %d bytes: %v", name, i, n, err)
			}
			if !bytes.Equal(e, all[i][1:]) {
				t.Fatalf("%s: event %d of %d bytes came out as %d bytes", name, i, n, len(e))
			}
		}
		if _, err := s.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: at the end of the connection: %v", name, err)
		}
	}
}

// hesitant would wait before each read, and hands out a random part then.
type hesitant struct {
	r     io.Reader
	r2    *rand.Rand
	ready bool
}

func (h *hesitant) Read(b []byte) (int, error) {
	if h.ready = !h.ready; h.ready {
		return 0, errWouldWait
	}
	return h.r.Read(b[:1+h.r2.IntN(len(b))])
}

// Where the stream would wait, at the beginning of an event or within, it is left and goes on there.
func TestAStreamThatIsLeftWhereItWouldWaitGoesOnThere(t *testing.T) {
	var all [][]byte
	for i, n := range []int{0, 100, streamBuffer - 4, 3 * streamBuffer, fullPacket - 1, 2*fullPacket - 1, 23, fullPacket +
		17, 5} {
		all = append(all, ev(n, byte(i+1)))
	}
	s := testStream(&hesitant{r: bytes.NewReader(packets(all...)), r2: rand.New(rand.NewPCG(1, 2))})
	waits := 0
	next := func() ([]byte, error) {
		for {
			e, err := s.next()
			if !errors.Is(err, errWouldWait) {
				return e, err
			}
			waits++
		}
	}
	for i := range all {
		if e, err := next(); err != nil || !bytes.Equal(e, all[i][1:]) {
			t.Fatalf("event %d of %d bytes came out as %d bytes, %v", i, len(all[i])-1, len(e), err)
		}
	}
	if _, err := next(); !errors.Is(err, io.ErrUnexpectedEOF) || waits < len(all) {
		t.Errorf("at the end: %v, after %d waits", err, waits)
	}
}

func TestMemoryOfAGiantEventIsGivenBack(t *testing.T) {
	list := [][]byte{ev(2*fullPacket, 1), ev(20<<20>>1, 2)}
	for range 2 * shrinkAfter {
		list = append(list, ev(50, 3))
	}
	s := testStream(bytes.NewReader(packets(list...)))
	for range list {
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	if held := len(s.buf) + cap(s.large); held > streamBuffer {
		t.Errorf("%d bytes are held after giant events, want %d", held, streamBuffer)
	}
}

func TestTheEndOfADumpIsTold(t *testing.T) {
	for _, c := range []struct {
		payload []byte
		want    string
	}{
		{append([]byte{0xff}, "gone"...), "refused: gone"},
		{[]byte{0xfe, 0, 0, 2, 0}, errStreamEnded.Error()},
		{[]byte{}, "binlog stream: empty packet"},
		{[]byte{7, 1}, "binlog stream: packet begins with 0x7"},
	} {
		if _, err := testStream(bytes.NewReader(packets(c.payload))).next(); err == nil || err.Error() != c.want {
			t.Errorf("%x: %v, want %s", c.payload, err, c.want)
		}
	}
	wire := packets(ev(3, 1), ev(3, 2))
	wire[4+4+3] = 9
	s := testStream(bytes.NewReader(wire))
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.next(); err == nil {
		t.Error("a packet out of order was taken")
	}
}
