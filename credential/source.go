package credential

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// MaxSize bounds a secret, in bytes.
const MaxSize = 64 << 10

// Source is where a password or token comes from. Nil is none: it reads as "".
type Source struct {
	// key is the key of the configuration that names the file or command, for errors.
	key string
	// text is behind a pointer, as is accepted, since fmt looks through one pointer of a caller's struct, and calls no
	// method on what it reaches through an unexported field.
	text    *string
	path    string
	command *command

	// accepted is what the command said last that a server has accepted; nil: nothing yet.
	accepted atomic.Pointer[string]
}

// Text is a secret that is here already; nil for "".
func Text(text string) *Source {
	if text == "" {
		return nil
	}
	return &Source{text: &text}
}

// File is a secret that is in a file. key is the key of the configuration that names it.
func File(key, path string) *Source { return &Source{key: key, path: path} }

// Command is a secret that a command prints, by its words ([Split]). key is the key of the configuration that names it.
func Command(key string, words []string) *Source {
	return &Source{key: key, command: newCommand(words)}
}

// Reveal returns the secret if it is a text, and "" if it must be read.
func (s *Source) Reveal() string {
	if s == nil || s.text == nil {
		return ""
	}
	return *s.text
}

// Changes reports whether another reading may bring another secret.
func (s *Source) Changes() bool { return s != nil && s.text == nil }

// Patience is for how much longer than others a login may take, since a command is run for it, twice at most.
func (s *Source) Patience() time.Duration {
	if s == nil || s.command == nil {
		return 0
	}
	return 2 * (pause + s.command.timeout + leftover)
}

// Error says that a secret or a certificate could not be read. It holds nothing of it.
type Error struct {
	// Key is the key of the configuration.
	Key string
	// What is wrong, with the file or command.
	What string
	// Do is what to do about it.
	Do string
	// Err is what it came of, if that was another error.
	Err error
}

// Error returns key, what is wrong, and what to do.
func (e *Error) Error() string {
	s := e.What
	if e.Key != "" {
		s = e.Key + ": " + s
	}
	if e.Do != "" {
		s += ": " + e.Do
	}
	return s
}

// Unwrap returns what it came of.
func (e *Error) Unwrap() error { return e.Err }

// IsUnread reports whether an error says that a secret or certificate could not be read. A later attempt may pass.
func IsUnread(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// Read returns the secret as it is now. The error is an [Error], or that of a canceled context.
func (s *Source) Read(ctx context.Context) (string, error) {
	switch {
	case s == nil:
		return "", nil
	case s.command != nil:
		text, err := s.command.read(ctx)
		switch {
		case err == nil || errors.Is(ctx.Err(), context.Canceled):
			return text, err
		case ctx.Err() != nil:
			err = fmt.Errorf("was still running when the time for the login was over: %w", ctx.Err())
		}
		return "", &Error{
			Key: s.key, What: "the command " + s.command.words[0] + " " + err.Error(),
			Do: "run it by hand as the user that freshet runs as; it is run again at the next login", Err: err,
		}
	case s.path != "":
		text, err := readFile(s.path)
		if err == nil {
			return text, nil
		}
		return "", &Error{
			Key: s.key, What: err.Error(), Do: "write the secret and nothing else into it; it is read again at the next login",
			Err: err,
		}
	}
	return *s.text, nil
}

// Try logs in with the secret as it is now. If that is refused, the secret is read once more, and if it has changed
// meanwhile, there is a second attempt. attempt is given the secret; refused says whether its error is a refusal of it.
func (s *Source) Try(ctx context.Context, attempt func(secret string) error, refused func(error) bool) error {
	text, err := s.Read(ctx)
	if err != nil {
		return err
	}
	return s.again(ctx, text, attempt(text), attempt, refused)
}

// Seldom is [Source.Try] for connections that are made often and live for short: it begins with what the last of its
// logins was accepted with, and runs the command only when that is refused.
func (s *Source) Seldom(ctx context.Context, attempt func(secret string) error, refused func(error) bool) error {
	if s == nil || s.command == nil {
		return s.Try(ctx, attempt, refused)
	}
	before := s.accepted.Load()
	noting := func(secret string) error {
		err := attempt(secret)
		if err == nil {
			s.accepted.Store(&secret)
		}
		return err
	}
	if before == nil {
		return s.Try(ctx, noting, refused)
	}
	return s.again(ctx, *before, attempt(*before), noting, refused)
}

// again makes a second attempt if the first was refused and the secret has changed.
func (s *Source) again(ctx context.Context, text string, err error, attempt func(string) error,
	refused func(error) bool,
) error {
	if err == nil || !s.Changes() || !refused(err) {
		return err
	}
	now, unread := s.Read(ctx)
	if unread != nil {
		return fmt.Errorf("%w; it was read again for the next attempt: %w", err, unread)
	}
	if now != text {
		err = attempt(now)
	}
	if s.command != nil && err != nil && refused(err) {
		s.command.useless()
	}
	return err
}
