package invalidator

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
)

// lateInfo is a server that answers INFO only once the next command is here. It returns its address.
func lateInfo(t *testing.T) string {
	t.Helper()
	return serving(t, serveLateInfo)
}

// serving has a server do the same with each connection, one after the other. It returns its address.
func serving(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	t.Cleanup(func() {
		testbed.Must(t, l.Close())
		<-done
	})
	return l.Addr().String()
}

func serveLateInfo(c net.Conn) {
	defer c.Close()
	late := ""
	for in := bufio.NewReader(c); ; {
		word, err := firstWord(in)
		if err != nil {
			return
		}
		reply := "-ERR unknown command\r\n"
		switch word {
		case "info":
			late = "$4\r\ninfo\r\n"
			continue
		case "evalsha", "unlink":
			reply = ":1\r\n"
		}
		if _, err := c.Write([]byte(late + reply)); err != nil {
			return
		}
		late = ""
	}
}

// firstWord reads a command, and returns its name.
func firstWord(in *bufio.Reader) (string, error) {
	var words []string
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	for n := int(line[1] - '0'); n > 0; n-- { // no command here has more than nine words
		if _, err = in.ReadString('\n'); err != nil {
			return "", err
		}
		if line, err = in.ReadString('\n'); err != nil {
			return "", err
		}
		words = append(words, line)
	}
	return strings.ToLower(strings.TrimSpace(words[0])), nil
}

// A question to a new connection that is not answered in time is answered later: by then somebody else would take that
// for the reply to its own command.
func TestAConnectionWhoseFirstAnswerIsLateIsNotUsed(t *testing.T) {
	asked := 0
	s := single(t, SingleOptions{
		Address: lateInfo(t), Timeout: 100 * time.Millisecond,
		Connected: func(ctx context.Context, c *redis.Conn) error {
			asked++
			return c.Info(ctx).Err()
		},
	})
	b, err := write.New(write.Options{})
	testbed.Must(t, err)
	call := b.Acquire(b.Lock("a", 0))
	s.Do(t.Context(), []*write.Call{call})
	if call.Err == nil || call.Reply != nil {
		t.Errorf("the reply is %v, %v", call.Reply, call.Err)
	}
	c := commandsOf("a")
	s.Unlink(t.Context(), c)
	var late net.Error
	if !errors.As(c[0].Err, &late) || !late.Timeout() {
		t.Errorf("the error is %v, want that of the question", c[0].Err)
	}
	if asked == 0 {
		t.Error("nothing was asked")
	}
}
