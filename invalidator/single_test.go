package invalidator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/credential/credentialtest"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

func single(t testing.TB, o SingleOptions) *Single {
	t.Helper()
	s, err := NewSingle(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func commandsOf(keys ...string) []*Command {
	var commands []*Command
	for _, k := range keys {
		c := newCommand(10)
		for _, k := range strings.Fields(k) {
			c.add(k)
		}
		commands = append(commands, c)
	}
	return commands
}

func TestSingleDeletesOnARealServer(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr, DB: 3})
	server.Do(t, "select", 0)
	conn := server.Client().Conn()
	defer func() { testbed.Must(t, conn.Close()) }()
	testbed.Must(t, conn.Select(t.Context(), 3).Err())
	binary := "bin\x00\r\n\xff"
	for _, k := range []string{"a", "b", binary, "stays"} {
		testbed.Must(t, conn.Set(t.Context(), k, "1", 0).Err())
	}
	commands := commandsOf("a b missing", "x")
	commands[1].add(binary)
	s.Unlink(t.Context(), commands)
	for i, want := range []int64{2, 1} {
		if c := commands[i]; c.Err != nil || c.Found != want {
			t.Errorf("command %d found %d, %v; want %d", i, c.Found, c.Err, want)
		}
	}
	if keys := conn.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != "stays" {
		t.Errorf("left: %q", keys)
	}
	if err := s.Ping(t.Context()); err != nil || s.String() != server.Addr {
		t.Errorf("%s: %v", s, err)
	}
}

func TestSingleReadsEachCommandsOwnError(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~ok:*", "+@all")
	s := single(t, SingleOptions{Address: server.Addr, Username: "some", Password: credential.Text("secret")})
	commands := commandsOf("ok:1", "ok:2 bad", "ok:3")
	s.Unlink(t.Context(), commands)
	for i, want := range []retry.Class{retry.None, retry.Key, retry.None} {
		if got := retry.ClassifyRedis(commands[i].Err); got != want {
			t.Errorf("command %d: %v (%v), want %v", i, commands[i].Err, got, want)
		}
	}
}

func TestAUserWhoMayNotPingIsAnsweredAllTheSame(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~*", "+unlink")
	s := single(t, SingleOptions{Address: server.Addr, Username: "some", Password: credential.Text("secret")})
	testbed.Must(t, s.Ping(t.Context()))
	testbed.Must(t, server.Stop())
	if err := s.Ping(t.Context()); retry.ClassifyRedis(err) != retry.Away {
		t.Errorf("a Redis that is gone: %v", err)
	}
}

// go-redis leaves commands that were never sent as if they had passed when the server refuses the connection.
func TestARefusedConnectionIsNoSuccess(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "set", "a", "1")
	server.Do(t, "config", "set", "requirepass", "secret")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	testbed.Must(t, closed.Close())
	for name, c := range map[string]struct {
		o     SingleOptions
		error string
	}{
		"no password":             {SingleOptions{Address: server.Addr}, "NOAUTH"},
		"no password, another db": {SingleOptions{Address: server.Addr, DB: 2}, "NOAUTH"},
		"wrong password":          {SingleOptions{Address: server.Addr, Password: credential.Text("x")}, "WRONGPASS"},
		"unknown user":            {SingleOptions{Address: server.Addr, Username: "x", Password: credential.Text("x")}, "WRONGPASS"},
		"no such db": {
			SingleOptions{Address: server.Addr, Password: credential.Text("secret"), DB: 99},
			"DB index is out of range",
		},
		"nobody there": {SingleOptions{Address: closed.Addr().String()}, "connection refused"},
	} {
		s := single(t, c.o)
		commands := commandsOf("a", "b")
		for range 30 { // more often than a pool would put up with
			s.Unlink(t.Context(), commands)
			for _, command := range commands {
				if err := command.Err; retry.ClassifyRedis(err) != retry.Away || !strings.Contains(err.Error(), c.error) {
					t.Fatalf("%s: %v, want %s", name, err, c.error)
				}
			}
		}
	}
	s := single(t, SingleOptions{Address: server.Addr, Password: credential.Text("secret")})
	commands := commandsOf("a")
	s.Unlink(t.Context(), commands)
	if commands[0].Err != nil || commands[0].Found != 1 {
		t.Errorf("found %d, %v", commands[0].Found, commands[0].Err)
	}
}

func TestSingleSpeaksTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testbed.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testbed.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	testbed.Must(t, err)
	server, err := miniredis.RunTLS(&tls.Config{Certificates: []tls.Certificate{{
		Certificate: [][]byte{der},
		PrivateKey:  key,
	}}})
	testbed.Must(t, err)
	defer server.Close()
	testbed.Must(t, server.Set("a", "1"))
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	trusting := credentialtest.Fixed(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	s := single(t, SingleOptions{Address: server.Addr(), TLS: trusting})
	commands := commandsOf("a")
	s.Unlink(t.Context(), commands)
	if commands[0].Err != nil || commands[0].Found != 1 {
		t.Fatalf("found %d, %v", commands[0].Found, commands[0].Err)
	}
	system := credentialtest.Fixed(&tls.Config{MinVersion: tls.VersionTLS12})
	untrusting := single(t, SingleOptions{Address: server.Addr(), TLS: system})
	if err := untrusting.Ping(t.Context()); err == nil || retry.ClassifyRedis(err) != retry.Away {
		t.Fatalf("an unknown certificate: %v", err)
	}
}

func TestSingleKeepsToItsDeadline(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	testbed.Must(t, s.Ping(t.Context()))
	testbed.Must(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	commands := commandsOf("a")
	begin := time.Now()
	s.Unlink(ctx, commands)
	if took := time.Since(begin); retry.ClassifyRedis(commands[0].Err) != retry.Away || took > 900*time.Millisecond {
		t.Errorf("%v after %s", commands[0].Err, took)
	}
	testbed.Must(t, server.Resume())
}

func TestSingleRefusesBadOptions(t *testing.T) {
	for _, o := range []SingleOptions{
		{},
		{Address: "localhost"},
		{Address: "h:1", DB: -1},
		{Address: "h:1", Timeout: -1},
	} {
		if s, err := NewSingle(o); err == nil {
			t.Errorf("%+v was taken: %s", o, s)
		}
	}
}

// Filling and sending commands must not cost an allocation for each key.
func TestDeletesDoNotAllocateForEachKey(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	var commands []*Command
	for range tripCommands {
		commands = append(commands, newCommand(commandKeys))
	}
	keys := make([]string, tripKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("product:%d", i)
	}
	got := testing.AllocsPerRun(20, func() {
		for i, c := range commands {
			c.reset()
			for _, k := range keys[i*commandKeys : (i+1)*commandKeys] {
				c.add(k)
			}
		}
		s.Unlink(t.Context(), commands)
	})
	if got > tripKeys/20 {
		t.Errorf("%.0f allocations for %d keys", got, tripKeys)
	}
	if err := commands[0].Err; err != nil {
		t.Error(err)
	}
}
