package invalidator

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/freshet/freshet/retry"
)

// unlinkConn is a connection that only UNLINK is sent down, written and read by hand: what a general client does for one
// small command (a look at the pool and at the socket, an object for each reply, deadlines and timers of its own) takes as
// long as a third of all else on the way from the binlog. One goroutine at a time uses it.
type unlinkConn struct {
	net.Conn
	in   *bufio.Reader
	out  []byte
	used time.Time
}

// trusted is how long a connection may have been unused for it to be taken without a look whether it is still open.
const trusted = 100 * time.Millisecond

// refusal is an error that Redis answers with. It implements [redis.Error].
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError marks it as Redis' own.
func (refusal) RedisError() {}

// Unlink implements [Redis].
func (s *Single) Unlink(ctx context.Context, commands []*Command) {
	deadline := time.Now().Add(s.options.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn, err := s.unlinkConn(ctx, deadline)
	if err != nil {
		failAll(commands, err)
		return
	}
	if !conn.unlink(commands) {
		_ = conn.Close()
		return
	}
	select {
	case s.unlinks <- conn:
	default:
		_ = conn.Close()
	}
}

func failAll(commands []*Command, err error) {
	for _, c := range commands {
		c.Found, c.Err = 0, err
	}
}

// unlinkConn returns a connection that nobody uses, or makes one.
func (s *Single) unlinkConn(ctx context.Context, deadline time.Time) (*unlinkConn, error) {
	select {
	case c := <-s.unlinks:
		if err := c.SetDeadline(deadline); err == nil && c.open() {
			return c, nil
		}
		_ = c.Close()
	default:
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &unlinkConn{Conn: conn, in: bufio.NewReaderSize(conn, readBuffer), used: time.Now()}
	if err = c.SetDeadline(deadline); err == nil {
		err = c.login(&s.options)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// open reports whether Redis has left the connection open, as far as that is known without asking. A Redis that closes
// what is unused (its setting timeout) is not away.
func (c *unlinkConn) open() bool {
	if time.Since(c.used) < trusted {
		return true
	}
	conn := c.Conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var seen error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, seen = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		return true
	})
	return err == nil && errors.Is(seen, syscall.EAGAIN) // what was not asked for is a farewell, or the end
}

// login makes the connection that of the user, and of the database. HELLO lets a user who needs no password log in with
// any; what has no HELLO (Redis before 6.0, proxies) says so in words of its own.
func (c *unlinkConn) login(o *SingleOptions) error {
	if o.Password != "" {
		auth := []string{"auth", o.Password}
		if o.Username != "" {
			auth = []string{"auth", o.Username, o.Password}
		}
		err := c.ask("hello", "2", "auth", cmp.Or(o.Username, "default"), o.Password)
		if refused := refusal(""); errors.As(err, &refused) {
			err = c.ask(auth...)
		}
		if err != nil {
			return err
		}
	}
	if o.DB != 0 {
		return c.ask("select", strconv.Itoa(o.DB))
	}
	return nil
}

// ask sends a command, and returns what Redis refuses it with. What else it answers is of no interest.
func (c *unlinkConn) ask(args ...string) error {
	c.out = appendArray(c.out[:0], len(args))
	for _, a := range args {
		c.out = appendBulk(c.out, a)
	}
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	return c.skipReply()
}

// skipReply reads a reply of RESP2, and of its parts if it has any.
func (c *unlinkConn) skipReply() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	n, sizeErr := strconv.Atoi(string(line[1:]))
	switch line[0] {
	case '+', ':':
		return nil
	case '-':
		return refusal(line[1:])
	case '$':
		if sizeErr == nil && n >= 0 {
			_, sizeErr = c.in.Discard(n + len("\r\n"))
		}
		return sizeErr
	case '*':
		for ; n > 0 && err == nil; n-- {
			err = c.skipReply()
		}
		return errors.Join(sizeErr, err)
	}
	return unreadable(line)
}

// line reads a line, without its end. It is valid until the next read.
func (c *unlinkConn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, unreadable(line)
	}
	return line[:len(line)-2], nil
}

func unreadable(line []byte) error { return fmt.Errorf("redis: unreadable answer %q", line) }

// unlink makes a round trip, and reports whether the connection is good for another. Who answers that this Redis takes no
// deletes is asked no more: somebody else may have its address now.
func (c *unlinkConn) unlink(commands []*Command) bool {
	if err := c.send(commands); err != nil {
		failAll(commands, err)
		return false
	}
	good := true
	for i, command := range commands {
		err := c.answer(command)
		if err != nil {
			failAll(commands[i:], err)
			return false
		}
		good = good && retry.ClassifyRedis(command.Err) != retry.Away
	}
	c.used = time.Now()
	// An answer too many would be taken for that of the next command, and acknowledge a delete that Redis may refuse.
	return good && c.in.Buffered() == 0
}

// send writes the commands, in as few writes as the buffer allows.
func (c *unlinkConn) send(commands []*Command) error {
	c.out = c.out[:0]
	for _, command := range commands {
		c.out = appendBulk(appendArray(c.out, 1+command.Len()), "unlink")
		for _, key := range command.keys {
			c.out = appendBulk(c.out, key)
			if len(c.out) < writeBuffer {
				continue
			}
			if _, err := c.Write(c.out); err != nil {
				return err
			}
			c.out = c.out[:0]
		}
	}
	_, err := c.Write(c.out)
	return err
}

// answer reads the answer to a command.
func (c *unlinkConn) answer(command *Command) error {
	line, err := c.line()
	if err != nil {
		return err
	}
	switch line[0] {
	case ':':
		command.Err = nil
		command.Found, err = strconv.ParseInt(string(line[1:]), 10, 64)
		return err
	case '-':
		command.Found, command.Err = 0, refusal(line[1:])
		return nil
	}
	return unreadable(line)
}

// appendArray and appendBulk write the parts of a command.
// Source: Redis serialization protocol specification, "Arrays" and "Bulk strings".
func appendArray(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, '*'), int64(n), 10), "\r\n"...)
}

func appendBulk(b []byte, s string) []byte {
	b = append(strconv.AppendInt(append(b, '$'), int64(len(s)), 10), "\r\n"...)
	return append(append(b, s...), "\r\n"...)
}
