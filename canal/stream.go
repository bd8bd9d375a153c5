package canal

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-mysql-org/go-mysql/client"
)

const (
	// streamBuffer is what one read takes at most while events are small.
	streamBuffer = 128 << 10
	// shrinkAfter is how many small packets in a row give back the memory that a large one took.
	shrinkAfter = 256
	// fullPacket is the length of a packet that the next one continues.
	// Source: MySQL Source Code Documentation, "MySQL Packets".
	fullPacket = 1<<24 - 1
)

// errStreamEnded says that the server ended the dump in an orderly way: it shuts down or was told to.
var errStreamEnded = errors.New("the server ended the binlog dump")

// stream cuts what the server sends after a dump command into binlog events. Events lie in its one buffer, so
// nothing is copied and nothing allocated for each; only an event of 16 MiB and more, which spans several packets,
// is put together in a place of its own.
type stream struct {
	r   io.Reader
	buf []byte
	// The unread part is buf[from:to].
	from, to int
	seq      byte
	large    []byte
	// begun: the present packet was left before it was whole.
	begun bool
	small int
	fail  func(packet []byte) error // makes an error of an error packet
}

// newStream takes over the reading side of a connection that a dump command has just been written to. All answers
// to what was asked before have been read, so nothing waits in the library's own buffer.
func newStream(conn *client.Conn) *stream {
	return &stream{r: conn.Conn.Conn, buf: make([]byte, streamBuffer), seq: conn.Sequence, fail: conn.HandleErrorPacket}
}

// next returns the next event, valid until the next call. After [errWouldWait] it goes on where it was.
func (s *stream) next() ([]byte, error) {
	p, err := s.packet()
	if err != nil {
		return nil, err
	}
	if len(p) == 0 {
		return nil, errors.New("binlog stream: empty packet")
	}
	switch p[0] {
	case 0:
		return p[1:], nil
	case 0xff:
		return nil, s.fail(p)
	case 0xfe:
		return nil, errStreamEnded
	}
	return nil, fmt.Errorf("binlog stream: packet begins with %#x", p[0])
}

// packet returns the payload of the next packet, or of the next packets that belong together.
func (s *stream) packet() ([]byte, error) {
	if !s.begun {
		s.shrink()
	}
	for s.begun = true; ; {
		p, err := s.one()
		if err != nil {
			return nil, err
		}
		if 4+len(p) > streamBuffer {
			s.small = 0
		}
		if s.begun = len(p) == fullPacket; !s.begun && len(s.large) == 0 {
			return p, nil
		}
		if s.large = append(s.large, p...); !s.begun {
			return s.large, nil
		}
	}
}

// one returns the payload of one packet.
func (s *stream) one() ([]byte, error) {
	if err := s.fill(4); err != nil {
		return nil, err
	}
	h := s.buf[s.from : s.from+4]
	n := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
	if h[3] != s.seq {
		return nil, fmt.Errorf("binlog stream: packet number %d, want %d", h[3], s.seq)
	}
	if err := s.fill(4 + n); err != nil {
		return nil, err
	}
	s.seq++
	p := s.buf[s.from+4 : s.from+4+n : s.from+4+n]
	s.from += 4 + n
	return p, nil
}

// fill reads until n unread bytes are in the buffer.
func (s *stream) fill(n int) error {
	if s.to-s.from >= n {
		return nil
	}
	if s.from+n > len(s.buf) {
		b := s.buf
		if n > len(b) {
			b = make([]byte, n)
		}
		s.to = copy(b, s.buf[s.from:s.to])
		s.buf, s.from = b, 0
	}
	for s.to-s.from < n {
		m, err := s.r.Read(s.buf[s.to:])
		s.to += m
		if err != nil && s.to-s.from < n {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// shrink gives back the memory of large events some time after the last of them. It is called between packets,
// when nobody holds a part of the buffer any more.
func (s *stream) shrink() {
	s.large = nil
	if len(s.buf) == streamBuffer {
		return
	}
	if s.small++; s.small < shrinkAfter || s.to-s.from > streamBuffer {
		return
	}
	b := make([]byte, streamBuffer)
	s.to = copy(b, s.buf[s.from:s.to])
	s.buf, s.from = b, 0
}
