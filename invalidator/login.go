package invalidator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/retry"
)

// tryLogin logs in with a password: [credential.Source.Try] or [credential.Source.Seldom].
type tryLogin func(ctx context.Context, attempt func(password string) error, refused func(error) bool) error

// login logs a connection in. go-redis would do so within the time of the command that the connection is made for,
// which is less than a program may take that prints the password, and would not try another password when one is
// refused.
func (e *endpoint) login(ctx context.Context, c net.Conn, try tryLogin) error {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	err := try(ctx, func(password string) error {
		user := e.user
		if user == "" {
			user = "default"
		}
		err := e.auth(c, user, password)
		if e.user != "" || !isAnswer(err) || isRefusedLogin(err) {
			return err
		}
		// A server without ACLs, perhaps; what it says of one argument counts if it says anything.
		if again := e.auth(c, password); again == nil || isAnswer(again) {
			return again
		}
		return err
	}, isRefusedLogin)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// isAnswer reports whether the server has answered the login with an error.
func isAnswer(err error) bool {
	var e *retry.LoginRefused
	return errors.As(err, &e)
}

// isRefusedLogin reports whether the server does not take the password.
func isRefusedLogin(err error) bool {
	var e *retry.LoginRefused
	return errors.As(err, &e) &&
		(strings.HasPrefix(e.Answer, "WRONGPASS ") || strings.HasPrefix(e.Answer, "ERR invalid password"))
}

// withoutArguments returns an answer without the arguments that Redis repeats of a command that it does not know: the
// password is one of them, or what a message says of a row.
func withoutArguments(answer string) string {
	known, _, _ := strings.Cut(answer, ", with args beginning with:")
	return known
}

// bare returns an error without these arguments.
func bare(err error) error {
	if text := withoutArguments(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// maxAnswer is more than any answer to AUTH has, in bytes.
const maxAnswer = 4 << 10

// auth sends AUTH with its arguments, and reads the answer, which is one line.
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
func (e *endpoint) auth(c net.Conn, args ...string) error {
	request := fmt.Appendf(nil, "*%d\r\n$4\r\nAUTH\r\n", 1+len(args))
	for _, a := range args {
		request = append(append(append(request, '$'), strconv.Itoa(len(a))...), "\r\n"...)
		request = append(append(request, a...), "\r\n"...)
	}
	if err := c.SetDeadline(time.Now().Add(e.timeout)); err != nil {
		return err
	}
	if _, err := c.Write(request); err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	var line []byte
	for one := make([]byte, 1); ; { // nothing comes after the line, so reading on would wait for nothing
		if _, err := c.Read(one); err != nil {
			return fmt.Errorf("log in: %w", err)
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) > maxAnswer {
			return errors.New("log in: the answer makes no sense: is this a Redis server?")
		}
	}
	answer := strings.TrimSuffix(string(line), "\r")
	switch {
	case answer == "+OK":
		return nil
	case strings.HasPrefix(answer, "-"):
		return &retry.LoginRefused{Answer: withoutArguments(answer[1:])}
	}
	return errors.New("log in: the answer makes no sense: is this a Redis server?")
}
