package canal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/retry"
)

const (
	// firstRetry and lastRetry bound the wait before a new connection, which has full jitter.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 3 * time.Second
	// lasting is how long a dump lasts that counts as one.
	lasting = time.Second
	// awayAfter is how long the source may not be read before it is an alarm.
	awayAfter = 10 * time.Second
	// giveUpAfter is how often in a row, without any progress in between, the server may refuse, or the stream make
	// no sense, before that is taken for the truth.
	giveUpAfter = 3
	// maxPatience bounds the factor by which the allowed silence grows while a server does not get so far as to
	// send what we asked for: it may have to look through large files first.
	maxPatience = 64
)

// reconnect decides when to connect again, and when not to.
type reconnect struct {
	// attempts owns the waits, which begin again after a dump that stood for some time, and what is logged.
	attempts retry.Loop
	// stuck counts refusals in a row.
	stuck int
	// refusedBy are the addresses of servers that have refused since anything was read: others are asked first.
	refusedBy map[string]bool
	// patience is a factor of the allowed silence; 0 is 1.
	patience int
	// since is since when the source has not been read, or, while it is read, since when it has been.
	since time.Time
	// stood is true once a dump has been begun: what fails from then on is not our configuration.
	stood bool
	// before is what had been read when the last connection was made.
	before progress
}

func (l *loop) newReconnect() *reconnect {
	return &reconnect{refusedBy: map[string]bool{}, attempts: retry.Loop{
		Backoff: retry.Backoff{Min: firstRetry, Max: lastRetry},
		Reporter: &retry.Reporter{
			Failed: func(err error) {
				l.o.Logger.Warn("the source is not being read", "source", l.o.Source, "address", l.o.Servers.words(),
					"error", words(err))
			},
			Kind: func(err error) (string, bool) { return words(err), true },
		},
	}}
}

// begins notes that a connection is made, and what has been read by then.
func (r *reconnect) begins(before progress) {
	r.before = before
	if r.since.IsZero() {
		r.since = time.Now()
	}
}

// begun notes that a dump has begun.
func (r *reconnect) begun() { r.stood, r.since = true, time.Now() }

// ended notes that the dump has ended. The waits begin again only if it had lasted: two readers of one name, which end
// one another's dumps, must not do so as fast as they can.
func (r *reconnect) ended() {
	if time.Since(r.since) >= lasting {
		r.attempts.Backoff.Reset()
	}
	r.since = time.Now()
}

// judge returns the error that ends the stream, or nil to try again. moved says that the connection brought something.
func (r *reconnect) judge(ctx context.Context, l *loop, err error, moved bool) error {
	if moved {
		r.stuck = 0
		clear(r.refusedBy)
	}
	if !r.stood && !isPassing(err) {
		if isDenied(err) {
			return fmt.Errorf("the server refuses user %q: %w: correct source.user and its password, or the user on the server",
				l.o.User, err)
		}
		return err
	}
	if isTimeout(err) && !moved {
		r.patience = min(max(1, r.patience)*2, maxPatience)
	}
	if !isRefusal(err) && !isDoubtful(err) {
		return nil
	}
	if isRefusal(err) {
		r.refusedBy[l.o.Servers.Current()] = true
	}
	if r.stuck++; r.stuck < giveUpAfter {
		return nil
	}
	if isRefusal(err) {
		return l.refused(ctx, err)
	}
	if errors.Is(err, retry.ErrHalt) || l.done.isZero() {
		return err
	}
	return &EventError{File: l.done.file, Pos: l.done.pos, Err: err} // found in a look ahead
}

// refusedLast compares two servers that could be read.
func (r *reconnect) refusedLast(a, b *candidate) int {
	switch refused := r.refusedBy; {
	case refused[a.address] == refused[b.address]:
		return 0
	case refused[a.address]:
		return 1
	}
	return -1
}

// refused makes an error of the server's refusal to send the binlog from our position.
func (l *loop) refused(ctx context.Context, err error) error {
	p := l.position()
	gap := &GapError{Position: p, Fix: fixPurged}
	e, _ := retry.ServerError(err)
	gap.Reason = fmt.Sprintf("the source refuses to send the binlog from there: %q", e.Message)
	if s, err := l.o.connect(ctx, queryTimeout); err == nil {
		gap.Oldest = oldest(s)
		s.close()
	}
	return gap
}

// isRefusal reports whether the server says that it cannot send the binlog from our position.
func isRefusal(err error) bool { return retry.ClassifySource(err) == retry.Lost }

// isBehind reports whether another server answers that still lacks what we have passed.
func isBehind(err error) bool {
	var b *behindError
	return errors.As(err, &b)
}

// isDoubtful reports whether the bytes of the stream are wrong: perhaps on the way, perhaps in the binlog.
func isDoubtful(err error) bool {
	return errors.Is(err, binlog.ErrDamaged) || errors.Is(err, errNonsense)
}

// isTimeout reports whether the server was silent for too long.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// isPassing reports whether an error before the first dump says that the server, or the file with our password, is not
// there at the moment, and not that we are configured wrongly.
func isPassing(err error) bool {
	if _, answered := retry.ServerError(err); answered {
		return retry.ClassifySource(err) == retry.Away
	}
	var ne net.Error
	return isBehind(err) || credential.IsUnread(err) || errors.As(err, &ne) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, mysql.ErrBadConn)
}
