package invalidator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/credential/credentialtest"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// redisOverTLS starts a Redis that also listens for TLS, and returns its address there and what to connect with.
func redisOverTLS(t *testing.T, args ...string) (server *testbed.RedisServer, addr string, config *tls.Config) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testbed.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	testbed.Must(t, err)
	parsed, err := x509.ParseCertificate(der)
	testbed.Must(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	testbed.Must(t, err)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testbed.Must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	testbed.Must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	addr = free.Addr().String()
	testbed.Must(t, free.Close())
	_, port, _ := net.SplitHostPort(addr)
	server = testbed.Redis(t, append(args, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no")...)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return server, addr, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// awaitClosed waits until nobody but the test is connected.
func awaitClosed(t *testing.T, server *testbed.RedisServer) {
	t.Helper()
	testbed.Eventually(t, 2*time.Minute, "nobody else is connected", func() bool {
		list, err := server.Client().ClientList(t.Context()).Result()
		return err == nil && strings.Count(list, "\n") <= 1
	})
}

// useAll does all that is ever asked of Redis.
func useAll(t *testing.T, s *Single) {
	t.Helper()
	testbed.Must(t, s.Ping(t.Context()))
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	two := append(commandsOf("a"), commandsOf("b")...)
	s.Unlink(t.Context(), two)
	testbed.Must(t, errors.Join(two[0].Err, two[1].Err))
	b, err := write.New(write.Options{})
	testbed.Must(t, err)
	call := b.Acquire(b.Lock("a", 0))
	s.Do(t.Context(), []*write.Call{call})
	testbed.Must(t, call.Err)
}

// Servers and proxies close what is unused. Nothing that is asked of Redis then fails, over TLS either.
func TestConnectionsThatRedisHasClosedAreNotUsed(t *testing.T) {
	t.Parallel()
	server, addr, config := redisOverTLS(t, "--timeout", "1")
	for name, o := range map[string]SingleOptions{
		"plain": {Address: server.Addr}, "TLS": {Address: addr, TLS: credentialtest.Fixed(config)},
	} {
		t.Run(name, func(t *testing.T) {
			s := single(t, o)
			for range 2 {
				useAll(t, s)
				awaitClosed(t, server)
			}
			useAll(t, s)
		})
	}
}

func TestConnectionsThatAProxyHasClosedAreNotUsed(t *testing.T) {
	server, addr, config := redisOverTLS(t)
	for name, o := range map[string]SingleOptions{
		"plain": {Address: server.Addr}, "TLS": {Address: addr, TLS: credentialtest.Fixed(config)},
	} {
		t.Run(name, func(t *testing.T) {
			between := proxy.Start(t, o.Address)
			o.Address = between.Addr()
			s := single(t, o)
			for range 2 {
				useAll(t, s)
				between.Reset()
				for conns := len(s.kept); conns > 0; conns-- { // as if they had not been used for long
					c := <-s.kept
					c.used = time.Time{}
					s.kept <- c
				}
				awaitClosed(t, server)
			}
			useAll(t, s)
		})
	}
}

// pair is both ends of a connection.
func pair(t *testing.T) (ours *conn, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	defer func() { testbed.Must(t, l.Close()) }()
	dialed, err := net.Dial("tcp", l.Addr().String())
	testbed.Must(t, err)
	theirs, err = l.Accept()
	testbed.Must(t, err)
	t.Cleanup(func() { _, _ = dialed.Close(), theirs.Close() })
	return &conn{Conn: dialed}, theirs
}

// exchange sends a command and has it answered.
func exchangeOne(t *testing.T, ours *conn, theirs net.Conn) {
	t.Helper()
	for _, step := range []struct {
		from io.Writer
		to   io.Reader
	}{{ours, theirs}, {theirs, ours}} {
		_, err := step.from.Write([]byte("x"))
		testbed.Must(t, err)
		_, err = io.ReadFull(step.to, make([]byte, 1))
		testbed.Must(t, err)
	}
}

// A server may close a connection just when it is used again, so that nobody can have seen it before.
func TestTheLossOfAConnectionIsNoNewsOfRedisIfItWasUnused(t *testing.T) {
	for _, c := range []struct {
		name   string
		unused time.Duration
		new    bool
		want   bool
	}{
		{"unused for long", time.Second, false, true},
		{"just used", 0, false, false},
		{"new", 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := pair(t)
			if !c.new {
				exchangeOne(t, ours, theirs)
				ours.used = time.Now().Add(time.Minute - c.unused*61) // far from the threshold on a slow machine
			}
			_, err := ours.Write([]byte("x"))
			testbed.Must(t, err)
			_, err = io.ReadFull(theirs, make([]byte, 1))
			testbed.Must(t, err)
			testbed.Must(t, theirs.Close())
			if _, err = ours.Read(make([]byte, 1)); errors.Is(err, errUnused) != c.want || !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		})
	}
}

// Once it has answered, it is a connection in use again.
func TestAConnectionThatAnswersIsInUse(t *testing.T) {
	ours, theirs := pair(t)
	exchangeOne(t, ours, theirs)
	ours.used = time.Now().Add(-time.Minute)
	exchangeOne(t, ours, theirs)
	if ours.doubted {
		t.Fatal("it has answered")
	}
}

// A Redis that is silent is silent, however long the connection was unused.
func TestATimeoutOfAnUnusedConnectionIsASilence(t *testing.T) {
	ours, theirs := pair(t)
	exchangeOne(t, ours, theirs)
	ours.used = time.Now().Add(-time.Minute)
	_, err := ours.Write([]byte("x"))
	testbed.Must(t, err)
	testbed.Must(t, ours.SetReadDeadline(time.Now()))
	if _, err = ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errUnused) {
		t.Fatal(err)
	}
}

// The command is sent again at once: no alarm, nothing is paused, and what is pending is not put off.
func TestAnUnusedConnectionThatIsLostIsNoSilence(t *testing.T) {
	for _, c := range []struct {
		lost             error
		outages, deletes int
	}{{errUnused, 0, 2}, {io.EOF, 1, 3}} {
		inBubble(t, Options{}, func(r *rig) {
			r.append(batchOf(4, d2, "a"))
			r.mark(4)
			r.pass(d2 - ms)
			answered := true
			r.redis.set(func() {
				r.redis.answer = func([]string) error {
					if answered {
						answered = false
						return c.lost
					}
					return nil
				}
			})
			r.append(batchOf(5, d2, "b"))
			r.pass(2 * d2)
			if n := r.alarms.count(alarm.RedisAway); n != c.outages {
				r.Fatalf("%v: %d alarms, want %d", c.lost, n, c.outages)
			}
			if n := r.count("a"); n != c.deletes {
				r.Fatalf("%v: a was deleted %d times, want %d", c.lost, n, c.deletes)
			}
		})
	}
}

// A PING over such a connection is made again as well.
func TestAPingOverAnUnusedConnectionIsNoOutage(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		lost := 0
		r.redis.set(func() {
			r.redis.ping = func() error {
				if lost++; lost < 5 {
					return errUnused
				}
				return nil
			}
		})
		r.pass(time.Minute)
		if n := r.alarms.count(alarm.RedisAway); n != 0 || lost < 5 {
			r.Fatalf("%d alarms after %d attempts", n, lost)
		}
	})
}
