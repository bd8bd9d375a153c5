package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

// conn is a connection to a broker that is encrypted and logged in as asked. It follows the frames that pass, so that
// it knows when nothing is under way, and logs in again then, before the session expires.
type conn struct {
	net.Conn
	raw    net.Conn // what lies under the encryption: for who must interrupt
	client *Client
	broker string
	// verified: the broker's certificate was looked at.
	verified bool

	out requests // belongs to Write

	mu        sync.Mutex
	sent, got frames
	// renew is when to log in again, and ends when the session ends; zero: never.
	renew, ends time.Time
	// reads and writes are the deadlines that the library has set.
	reads, writes time.Time
}

// frames follows requests or answers in a stream of bytes: each is four bytes of length and so many more
// (https://kafka.apache.org/protocol#protocol_common).
type frames struct {
	head  [4]byte
	n     int
	left  int
	begun uint64
	ended uint64
}

func (f *frames) feed(p []byte) {
	for len(p) > 0 {
		if f.left == 0 {
			if f.n == 0 {
				f.begun++
			}
			k := copy(f.head[f.n:], p)
			f.n, p = f.n+k, p[k:]
			if f.n < len(f.head) {
				return
			}
			f.n, f.left = 0, int(int32(binary.BigEndian.Uint32(f.head[:])))
			if f.left <= 0 {
				f.left, f.ended = 0, f.ended+1
			}
			continue
		}
		k := min(f.left, len(p))
		f.left, p = f.left-k, p[k:]
		if f.left == 0 {
			f.ended++
		}
	}
}

// renewIn plans the next login well before the session's end.
func (k *conn) renewIn(lifetime time.Duration) {
	k.renew, k.ends = time.Time{}, time.Time{}
	if lifetime > 0 {
		now := time.Now()
		k.renew, k.ends = now.Add(lifetime*8/10), now.Add(lifetime)
	}
}

// Write sends, after a login when one is due. It is safe to log in only when no answer is outstanding: then nobody
// reads either, since the library reads only what it has asked for, and another writer waits for us, for
// the library sends one request after the other.
func (k *conn) Write(p []byte) (int, error) {
	k.mu.Lock()
	due := !k.renew.IsZero() && time.Now().After(k.renew) && k.sent.begun == k.got.ended
	k.mu.Unlock()
	if due {
		if err := k.again(); err != nil {
			return 0, err
		}
	}
	if err := k.out.write(k.Conn, p); err != nil {
		return 0, err // whatever was sent, the library lets go of the connection
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent.feed(p)
	return len(p), nil
}

// again logs in on a connection that is in use, and leaves its deadlines as they were. If there is nothing to log in
// with at the moment, there is time for that until the session ends. Whether a refusal is one is for a new connection
// to say: the token may be another user's now, which brokers refuse on an old one.
func (k *conn) again() error {
	c := k.client
	secret, err := c.o.Login.secret.Read(c.life)
	if err != nil && time.Now().Before(k.ends) {
		k.mu.Lock()
		k.renew = time.Now().Add(time.Until(k.ends) / 4)
		k.mu.Unlock()
		return nil
	}
	var lifetime time.Duration
	if err == nil {
		ctx, cancel := context.WithTimeout(c.life, c.dialTimeout())
		defer cancel()
		deadline, _ := ctx.Deadline()
		_ = k.Conn.SetDeadline(deadline)
		lifetime, err = c.login(ctx, k.Conn, k.broker, secret)
	}
	if err != nil {
		_ = k.Conn.Close() // half a login is no state to go on from
		return &Error{Class: Transient, What: "log in again to broker " + k.broker, Err: err}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewIn(lifetime)
	_ = k.Conn.SetReadDeadline(k.reads)
	_ = k.Conn.SetWriteDeadline(k.writes)
	return nil
}

// Read receives.
func (k *conn) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.got.ended
	k.got.feed(p[:n])
	if k.got.ended > 1 {
		k.client.answered.Store(true)
	}
	if k.got.ended > before {
		k.client.lastError.hear()
	}
	// A listener that wants a login answers the question for its versions and hangs up at the first real request.
	if err != nil && hungUp(err) && k.client.o.Login == nil && k.got.ended == 1 && !k.client.answered.Load() {
		return n, &Error{
			Class: Unauthenticated, What: "talk to broker " + k.broker, Err: wantsLogin{},
			Advice: "it may want a login: set eventlog.kafka.sasl, or use the port of its listener without SASL",
		}
	}
	return n, err
}

// cleartext is a connection without encryption. A broker that encrypts answers with an alert of TLS, which the library
// would take for the size of an answer.
type cleartext struct {
	net.Conn
	began atomic.Bool
}

// Read receives.
func (p *cleartext) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 && !p.began.Swap(true) && b[0] == 0x15 {
		return 0, &Error{
			Class: Untrusted, What: "talk to broker " + p.RemoteAddr().String(),
			Err:    errors.New("the broker encrypts on this port"),
			Advice: "set eventlog.kafka.tls.mode to verify, or use the port of its listener without TLS",
		}
	}
	return n, err
}

// wantsLogin does not unwrap to io.EOF, which the library would put its own error in the place of.
type wantsLogin struct{}

func (wantsLogin) Error() string { return "the broker hung up at the first request" }

func (wantsLogin) Unwrap() error { return kafka.IllegalSASLState }

// SetDeadline sets both deadlines.
func (k *conn) SetDeadline(t time.Time) error {
	return errors.Join(k.SetReadDeadline(t), k.SetWriteDeadline(t))
}

// SetReadDeadline sets until when a read may take.
func (k *conn) SetReadDeadline(t time.Time) error {
	k.mu.Lock()
	k.reads = t
	k.mu.Unlock()
	return k.Conn.SetReadDeadline(t)
}

// SetWriteDeadline sets until when a write may take.
func (k *conn) SetWriteDeadline(t time.Time) error {
	k.mu.Lock()
	k.writes = t
	k.mu.Unlock()
	return k.Conn.SetWriteDeadline(t)
}

// Close is the library's: it does not use the connection any more.
func (k *conn) Close() error {
	err := k.Conn.Close()
	k.client.untrack(k)
	return err
}
