package invalidator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/freshet/freshet/credential"
)

// Sentinels say where the master is. They are asked before each connection to it is made: connections are seldom made,
// and what was true a second ago may not be. It keeps no connection, and is safe for concurrent use.
type Sentinels struct {
	// Name is what they call the master. Required.
	Name string
	// Addresses are host:port of the sentinels, at least one. Those that are not listed are not asked.
	Addresses []string
	// Username and Password are the sentinels' own. What a command has printed is used again until it is refused.
	Username string
	Password *credential.Source
	// Timeout bounds each question. Default 1 s.
	Timeout time.Duration
	// TLS, when not nil, is used for every connection to a sentinel.
	TLS credential.TLS
}

func (s *Sentinels) validate() error {
	if s.Name == "" || len(s.Addresses) == 0 {
		return errors.New("redis: sentinels need a name of the master and addresses")
	}
	for _, a := range s.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("redis: sentinel %q: want host:port: %w", a, err)
		}
	}
	return nil
}

// believed is what a sentinel says of the master.
type believed struct {
	addr string
	// epoch is that of the failover which made it the master. A later one has a higher epoch
	// (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/#configuration-epochs).
	epoch int64
	err   error
}

// grace is how long the other sentinels are waited for once one has answered. It is less than a look at Redis may take.
const grace = 500 * time.Millisecond

// Master returns where the master is, by the newest failover that any of the sentinels knows of. All are asked at once.
// It returns as soon as more than half of them name the same one, and otherwise waits for all: a sentinel that is cut
// off from the others still names the former master. It waits for at most half of Timeout, and after the first answer
// for at most grace. A password that must be read first has its own time.
func (s *Sentinels) Master(ctx context.Context) (addr string, err error) {
	addr, _, err = s.find(ctx)
	return addr, err
}

// Surely is Master for who must not take a former master for the present one. It fails while so many sentinels do not
// answer that they may have made another server the master: that takes more than half of all
// (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/#quorum).
func (s *Sentinels) Surely(ctx context.Context) (addr string, err error) {
	addr, silent, err := s.find(ctx)
	if err == nil && 2*len(silent) > len(s.Addresses) {
		err = fmt.Errorf("%d of %d sentinels do not answer, and may have made another server the master: %s", len(silent),
			len(s.Addresses), errors.Join(silent...).Error())
	}
	return addr, err
}

// find returns where the master is, and why sentinels do not say so.
func (s *Sentinels) find(ctx context.Context) (addr string, silent []error, err error) {
	err = s.Password.Seldom(ctx, func(password string) error {
		addr, silent, err = s.master(ctx, password)
		return err
	}, func(err error) bool {
		var e *unknownMaster
		return errors.As(err, &e) && e.refused
	})
	return addr, silent, err
}

// unknownMaster says that no sentinel has named the master. It holds what they answered as text, since an answer of a
// sentinel is none of Redis.
type unknownMaster struct {
	text string
	// refused: one of them did not take our password.
	refused bool
}

func (e *unknownMaster) Error() string { return e.text }

// patience is how long Master may take.
func (s *Sentinels) patience() time.Duration { return s.timeout() + s.Password.Patience() }

// master asks all sentinels once.
func (s *Sentinels) master(ctx context.Context, password string) (addr string, failed []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout()/2)
	defer cancel()
	answers := make(chan believed, len(s.Addresses))
	for _, a := range s.Addresses {
		go func() { answers <- s.ask(ctx, a, password) }()
	}
	var newest believed
	votes := map[believed]int{}
	for range s.Addresses { // each goroutine is waited for: they end with ctx
		b := <-answers
		if b.err != nil {
			failed = append(failed, b.err)
			continue
		}
		if newest.addr == "" {
			defer time.AfterFunc(grace, cancel).Stop()
		}
		if votes[b]++; 2*votes[b] > len(s.Addresses) {
			cancel()
		}
		if newest.addr == "" || b.epoch > newest.epoch || b.epoch == newest.epoch && votes[b] > votes[newest] {
			newest = b
		}
	}
	if newest.addr == "" {
		return "", failed, &unknownMaster{
			text:    fmt.Sprintf("no sentinel says where the master %s is: %s", s.Name, errors.Join(failed...).Error()),
			refused: slices.ContainsFunc(failed, redis.IsAuthError),
		}
	}
	return newest.addr, failed, nil
}

func (s *Sentinels) timeout() time.Duration {
	if s.Timeout == 0 {
		return DefaultTimeout
	}
	return s.Timeout
}

// client returns a client of one sentinel. Close it.
func (s *Sentinels) client(addr, password string) *redis.SentinelClient {
	t := s.timeout()
	dial := dialer(t, s.TLS)
	return redis.NewSentinelClient(&redis.Options{
		Addr: addr, Username: s.Username, Password: password,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return failedConn{err: err}, nil
			}
			return c, nil
		},
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 1,
		DialTimeout: t, ReadTimeout: t, WriteTimeout: t, PoolTimeout: t,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// ask asks one sentinel.
func (s *Sentinels) ask(ctx context.Context, addr, password string) believed {
	c := s.client(addr, password)
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // a read that is under way looks at deadlines only
	m, err := c.Master(ctx, s.Name).Result()
	if err != nil {
		return believed{err: fmt.Errorf("sentinel %s: %w%s", addr, bare(err), sentinelAdvice(err))}
	}
	epoch, err := strconv.ParseInt(m["config-epoch"], 10, 64)
	if err != nil || m["ip"] == "" || m["port"] == "" {
		return believed{err: fmt.Errorf("sentinel %s does not say where the master %s is", addr, s.Name)}
	}
	return believed{addr: net.JoinHostPort(m["ip"], m["port"]), epoch: epoch}
}

// sentinelAdvice says in a clause what an operator can do about what a sentinel answered; "" if nothing is known.
func sentinelAdvice(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	switch text := answer.Error(); {
	case strings.Contains(text, "No such master"):
		return "; set redis.master_name to the name after `sentinel monitor` in the sentinels' configuration"
	case redis.IsAuthError(err):
		return "; set redis.sentinel_username and redis.sentinel_password"
	case redis.IsPermissionError(err):
		return "; give the sentinels' user the right to +sentinel|master (ACL SETUSER)"
	case strings.Contains(text, "unknown command"):
		return "; this is a Redis server and no sentinel: give the sentinels' addresses in redis.addresses, or set redis.mode to single"
	}
	return ""
}
