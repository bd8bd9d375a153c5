package invalidator

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/credential/credentialtest"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// replicated is a master with a replica, and sentinels that watch them.
type replicated struct {
	master, replica *testbed.RedisServer
	sentinels       []*testbed.Sentinel
}

func newReplicated(t *testing.T, o testbed.SentinelOptions, sentinels int) *replicated {
	t.Helper()
	r := &replicated{master: testbed.Redis(t), replica: testbed.Redis(t)}
	r.replica.Do(t, "replicaof", "127.0.0.1", r.master.Port)
	testbed.Eventually(t, 2*time.Minute, "the replica follows", func() bool {
		return strings.Contains(r.replica.Client().Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	o.Master = r.master
	r.sentinels = testbed.Sentinels(t, o, sentinels)
	testbed.Eventually(t, 2*time.Minute, "the sentinels know the replica", func() bool {
		for _, s := range r.sentinels {
			if of, err := s.Client().Replicas(t.Context(), o.Name).Result(); err != nil || len(of) != 1 {
				return false
			}
		}
		return true
	})
	return r
}

func (r *replicated) addresses() (all []string) {
	for _, s := range r.sentinels {
		all = append(all, s.Addr)
	}
	return all
}

// failOver has the sentinels make the replica the master.
func (r *replicated) failOver(t *testing.T, name string) {
	t.Helper()
	testbed.Eventually(t, 2*time.Minute, "a sentinel begins a failover", func() bool {
		return r.sentinels[0].Client().Failover(t.Context(), name).Err() == nil
	})
	testbed.Eventually(t, 2*time.Minute, "the replica is the master", func() bool {
		return strings.Contains(r.replica.Client().Info(t.Context(), "replication").Val(), "role:master")
	})
}

func TestWritesFollowTheMasterThatTheSentinelsKnow(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, testbed.SentinelOptions{Name: "shop"}, 3)
	of := &Sentinels{Name: "shop", Addresses: r.addresses(), Timeout: 10 * time.Second}
	s := single(t, SingleOptions{Sentinels: of, Timeout: 10 * time.Second})
	if name := s.String(); name != "shop" {
		t.Errorf("before it has connected it is called %q", name)
	}
	unlink := func(key string) error {
		c := commandsOf(key)
		s.Unlink(t.Context(), c)
		return c[0].Err
	}
	testbed.Must(t, unlink("a"))
	if want := "shop (" + r.master.Addr + ")"; s.String() != want {
		t.Errorf("it is called %q, want %q", s.String(), want)
	}
	r.failOver(t, "shop")
	r.replica.Do(t, "set", "b", "1")
	testbed.Eventually(t, 2*time.Minute, "keys are deleted on the new master", func() bool {
		return unlink("b") == nil && r.replica.Client().Exists(t.Context(), "b").Val() == 0
	})
	if want := "shop (" + r.replica.Addr + ")"; s.String() != want {
		t.Errorf("it is called %q, want %q", s.String(), want)
	}
}

func TestASentinelThatIsGoneOrHungIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, testbed.SentinelOptions{Name: "shop", Password: "secret"}, 3)
	s := &Sentinels{Name: "shop", Addresses: r.addresses(), Password: credential.Text("secret"), Timeout: 20 * time.Second}
	testbed.Must(t, r.sentinels[0].Kill())
	testbed.Must(t, r.sentinels[1].Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if at, err := s.Master(ctx); err != nil || at != r.master.Addr {
		t.Errorf("one of three answers: %q, %v", at, err)
	}
	testbed.Must(t, r.sentinels[2].Kill())
	s.Timeout = time.Second
	_, err := s.Master(ctx)
	if err == nil || !strings.Contains(err.Error(), "no sentinel says where the master shop is") ||
		!strings.Contains(err.Error(), r.sentinels[2].Addr) {
		t.Errorf("none answers: %v", err)
	}
}

// A sentinel that is cut off from the others still names the former master.
func TestTheNewestFailoverCounts(t *testing.T) {
	for name, c := range map[string]struct {
		says []believed
		want string
	}{
		"they agree":                {[]believed{{addr: "a:1"}, {addr: "a:1"}, {addr: "a:1"}}, "a:1"},
		"one is cut off":            {[]believed{{addr: "a:1", epoch: 3}, {addr: "b:1", epoch: 4}, {addr: "b:1", epoch: 4}}, "b:1"},
		"one has heard of it first": {[]believed{{addr: "a:1", epoch: 3}, {addr: "b:1", epoch: 4}}, "b:1"},
		"most have not heard of it": {
			[]believed{{addr: "a:1", epoch: 3}, {addr: "a:1", epoch: 3}, {addr: "b:1", epoch: 4}}, "",
		},
		"others do not say":            {[]believed{{err: errors.New("no")}, {addr: "b:1", epoch: 4}, {err: errors.New("no")}}, "b:1"},
		"one epoch, the more say it":   {[]believed{{addr: "a:1"}, {addr: "b:1"}, {addr: "b:1"}, {addr: "c:1"}}, "b:1"},
		"an epoch of more digits":      {[]believed{{addr: "a:1", epoch: 9}, {addr: "b:1", epoch: 10}}, "b:1"},
		"an address of another family": {[]believed{{addr: "[::1]:6379", epoch: 1}}, "[::1]:6379"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Sentinels{Name: "shop", Timeout: time.Minute}
			for _, b := range c.says {
				s.Addresses = append(s.Addresses, sayingSentinel(t, b))
			}
			got, err := s.Master(t.Context())
			if err != nil || c.want != "" && got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// A long redis.timeout is for a Redis that is slow. That one of two sentinels hangs must not hide for so long that the
// other knows of a failover.
func TestASentinelThatHangsIsNotWaitedForAsLongAsRedis(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes the connection
	testbed.Must(t, err)
	defer hung.Close()
	s := &Sentinels{
		Name: "shop", Timeout: time.Hour,
		Addresses: []string{hung.Addr().String(), sayingSentinel(t, believed{addr: "a:1", epoch: 3})},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(time.Minute, cancel).Stop()
	if at, err := s.Master(ctx); at != "a:1" || err != nil || ctx.Err() != nil {
		t.Errorf("%q, %v, %v", at, err, ctx.Err())
	}
}

// sayingSentinel answers all that it is asked with one opinion.
func sayingSentinel(t *testing.T, b believed) (addr string) {
	t.Helper()
	return serving(t, func(c net.Conn) { saySentinel(c, b) })
}

// saySentinel serves a connection until its other end closes it.
func saySentinel(c net.Conn, b believed) {
	defer c.Close()
	for buf := make([]byte, 4096); ; {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		reply := "-ERR unknown command\r\n" // HELLO and the like
		if strings.Contains(strings.ToLower(string(buf[:n])), "sentinel") {
			host, port, _ := net.SplitHostPort(b.addr)
			reply = "-ERR No such master with that name\r\n"
			if b.err == nil {
				reply = "*6\r\n"
				for _, w := range []string{"ip", host, "port", port, "config-epoch", strconv.FormatInt(b.epoch, 10)} {
					reply += "$" + strconv.Itoa(len(w)) + "\r\n" + w + "\r\n"
				}
			}
		}
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

func TestWhatIsWrongWithSentinelsIsSaid(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, testbed.SentinelOptions{Name: "shop", Password: "secret"}, 1)
	for name, c := range map[string]struct {
		s    Sentinels
		want string
	}{
		"another name": {
			Sentinels{Name: "store", Addresses: r.addresses(), Password: credential.Text("secret")},
			"set redis.master_name",
		},
		"no password": {Sentinels{Name: "shop", Addresses: r.addresses()}, "set redis.sentinel_username and redis.sentinel_password"},
		"no sentinel": {
			Sentinels{Name: "shop", Addresses: []string{r.master.Addr}}, "this is a Redis server and no sentinel",
		},
		"nobody there":  {Sentinels{Name: "shop", Addresses: []string{"127.0.0.1:1"}}, "connection refused"},
		"wrong pasword": {Sentinels{Name: "shop", Addresses: r.addresses(), Password: credential.Text("x")}, "set redis.sentinel_username and redis.sentinel_password"},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Timeout = 20 * time.Second
			s := single(t, SingleOptions{Sentinels: &c.s, Timeout: 20 * time.Second})
			err := s.Ping(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if class := retry.ClassifyRedis(err); class != retry.Away {
				t.Errorf("it counts as %v, want away", class)
			}
		})
	}
	for _, s := range []Sentinels{{Name: "shop"}, {Addresses: []string{"a:1"}}, {Name: "shop", Addresses: []string{"a"}}} {
		if _, err := NewSingle(SingleOptions{Sentinels: &s}); err == nil {
			t.Errorf("%+v is taken", &s)
		}
	}
}

// place is a server that an address may lead to.
type place struct {
	server *testbed.RedisServer
	addr   string
	tls    *tls.Config
}

func newPlace(t *testing.T, secured bool) *place {
	t.Helper()
	if !secured {
		server := testbed.Redis(t)
		return &place{server: server, addr: server.Addr}
	}
	server, addr, config := redisOverTLS(t)
	return &place{server, addr, config}
}

// leading has an address lead to a place.
func leading(s *Single, to *atomic.Pointer[place]) {
	s.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		p := to.Load()
		if p.tls == nil {
			return new(net.Dialer).DialContext(ctx, network, p.addr)
		}
		return (&tls.Dialer{Config: p.tls}).DialContext(ctx, network, p.addr)
	}
}

// Nothing that was sent before counts, and all that comes after goes where the address leads now.
func TestAServerThatIsLeftIsNotTalkedToAnyMore(t *testing.T) {
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			old, next := newPlace(t, secured), newPlace(t, secured)
			var to atomic.Pointer[place]
			to.Store(old)
			s := single(t, SingleOptions{Address: old.addr, Timeout: time.Minute})
			leading(s, &to)
			useAll(t, s)
			testbed.Must(t, old.server.Pause())
			hung := make(chan error)
			go func() {
				c := commandsOf("c")
				s.Unlink(context.Background(), c)
				hung <- c[0].Err
			}()
			testbed.Eventually(t, time.Minute, "the kept connection is taken", func() bool { return len(s.kept) == 0 })
			to.Store(next)
			s.Leave()
			if err := <-hung; err != nil && !isNoNews(err) { // nil: it has just not been sent yet
				t.Errorf("what was under way says %v", err)
			}
			next.server.Do(t, "set", "d", "1")
			for range 20 { // more than there are connections
				var err error
				for again := true; again; again = isNoNews(err) {
					c := commandsOf("d")
					s.Unlink(t.Context(), c)
					err = c[0].Err
				}
				testbed.Must(t, err)
			}
			if next.server.Client().Exists(t.Context(), "d").Val() != 0 {
				t.Error("the key is still there")
			}
		})
	}
}

func TestALookGoesWhereTheAddressLeadsNow(t *testing.T) {
	old, next := newPlace(t, false), newPlace(t, false)
	var to atomic.Pointer[place]
	to.Store(old)
	s := single(t, SingleOptions{Address: old.addr, Timeout: time.Minute})
	leading(s, &to)
	looks := s.Looking()
	defer func() { testbed.Must(t, looks.Close()) }()
	run := func(c *redis.Client) string { return infoField(t, c, "run_id") }
	if run(looks) != run(old.server.Client()) || run(s.Client()) != run(old.server.Client()) {
		t.Fatal("it does not look at the server")
	}
	to.Store(next)
	testbed.Eventually(t, time.Minute, "a look finds the other server",
		func() bool { return run(looks) == run(next.server.Client()) })
	if run(s.Client()) != run(old.server.Client()) {
		t.Error("a look alone moves nothing")
	}
	s.Leave()
	if run(s.Client()) != run(next.server.Client()) {
		t.Error("it is still at the former server")
	}
}

func infoField(t *testing.T, c *redis.Client, name string) string {
	t.Helper()
	info, err := c.Info(t.Context()).Result()
	testbed.Must(t, err)
	_, rest, _ := strings.Cut(info, "\r\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

func TestWhatWasSentBeforeAMoveSaysNothingOfTheNewServer(t *testing.T) {
	w := newWatch()
	const d = instant(time.Second)
	w.answered(reply{1 * d, 1 * d})
	w.move(10 * d)
	w.answered(reply{9 * d, 11 * d}) // of the server before
	if w.dark(time.Second) >= 10*d {
		t.Error("an answer of the former server ends the silence of the new one")
	}
	w.answered(reply{12 * d, 13 * d})
	if end := w.dark(time.Second); end != 13*d {
		t.Errorf("the silence before the first answer of the new server ends at %v, want %v", end, 13*d)
	}
}

// A connection is being made while the server that it leads to is left.
func TestAConnectionThatWasBegunBeforeAMoveIsNotUsed(t *testing.T) {
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			old, next := newPlace(t, secured), newPlace(t, secured)
			var to atomic.Pointer[place]
			to.Store(old)
			s := single(t, SingleOptions{Address: old.addr, Timeout: time.Minute})
			leading(s, &to)
			made, moved := make(chan struct{}), make(chan struct{})
			dial := s.dial
			s.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				if to.Load() == old {
					close(made)
					<-moved
				}
				return c, err
			}
			old.server.Do(t, "set", "a", "1")
			next.server.Do(t, "set", "a", "1")
			first := make(chan error)
			go func() {
				c := commandsOf("a")
				s.Unlink(context.Background(), c)
				first <- c[0].Err
			}()
			<-made
			to.Store(next)
			s.Leave()
			close(moved)
			if err := <-first; !isNoNews(err) {
				t.Errorf("the first delete says %v", err)
			}
			c := commandsOf("a")
			s.Unlink(t.Context(), c)
			testbed.Must(t, c[0].Err)
			there := func(p *place) int64 { return p.server.Client().Exists(t.Context(), "a").Val() }
			if there(old) != 1 || there(next) != 0 {
				t.Error("the delete went to the former server")
			}
		})
	}
}

// What fails on a connection that has been left says nothing of Redis, whatever it is.
func TestNothingThatFailsOnALeftConnectionIsNews(t *testing.T) {
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			at := newPlace(t, secured)
			s := single(t, SingleOptions{Address: at.addr, TLS: credentialtest.Fixed(at.tls), Timeout: time.Minute})
			c := s.connect(t.Context(), s.password.Try, (*Sentinels).Master)
			defer c.Close()
			s.Leave()
			_, read := c.Read(make([]byte, 1))
			_, written := c.Write([]byte("PING\r\n"))
			for what, err := range map[string]error{
				"a read": read, "a write": written, "a deadline": c.SetDeadline(time.Now()),
				"a deadline of reads": c.SetReadDeadline(time.Now()), "a deadline of writes": c.SetWriteDeadline(time.Now()),
			} {
				if !isNoNews(err) {
					t.Errorf("%s says %v", what, err)
				}
			}
		})
	}
}

// A sentinel and a former master that are cut off from all others go on as if nothing had happened. What waits for
// Redis may use that master, but it is not known to be the one.
func TestWhatFewSentinelsSayIsNotSure(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	named, silent := believed{addr: server.Addr, epoch: 3}, believed{err: errors.New("no")}
	for name, c := range map[string]struct {
		says []believed
		want string // in the error; "": it is sure
	}{
		"all answer":   {[]believed{named, named, named}, ""},
		"two of three": {[]believed{named, silent, named}, ""},
		"one of two":   {[]believed{silent, named}, ""},
		"the only one": {[]believed{named}, ""},
		"one of three": {[]believed{silent, named, silent}, "2 of 3 sentinels do not answer"},
		"two of five":  {[]believed{silent, named, named, silent, silent}, "3 of 5 sentinels do not answer"},
		"none":         {[]believed{silent, silent}, "no sentinel says where the master shop is"},
	} {
		t.Run(name, func(t *testing.T) {
			sentinels := &Sentinels{Name: "shop", Timeout: time.Minute}
			for _, b := range c.says {
				sentinels.Addresses = append(sentinels.Addresses, sayingSentinel(t, b))
			}
			s := single(t, SingleOptions{Sentinels: sentinels, Timeout: time.Minute})
			if err := s.Ping(t.Context()); (err == nil) != slices.Contains(c.says, named) {
				t.Errorf("a command: %v", err)
			}
			looking := s.Looking()
			defer func() { testbed.Must(t, looking.Close()) }()
			err := looking.Ping(t.Context()).Err()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("a look: %v; want %q", err, c.want)
			}
		})
	}
}
