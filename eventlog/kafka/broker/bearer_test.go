package broker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/proof/testbed"
)

// jwt is a token without a signature, which Kafka's validator for tests takes. It names somebody for so long.
func jwt(subject string, life time.Duration) string {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	now := time.Now()
	return encode(`{"alg":"none"}`) + "." + encode(fmt.Sprintf(`{"sub":%q,"iat":%.3f,"exp":%.3f}`, subject,
		float64(now.UnixMilli())/1000, float64(now.Add(life).UnixMilli())/1000)) + "."
}

// bearers starts a broker that takes tokens, on loopback without TLS, and limits sessions.
func bearers(t *testing.T, more ...string) *testbed.KafkaCluster {
	t.Helper()
	return testbed.Kafka(t, testbed.KafkaOptions{Properties: append([]string{
		"listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"listener.name.client.sasl.enabled.mechanisms=OAUTHBEARER",
		"listener.name.client.oauthbearer.sasl.jaas.config=" +
			"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required " +
			`unsecuredLoginStringClaim_sub="admin";`,
		fmt.Sprintf("connections.max.reauth.ms=%d", time.Hour.Milliseconds()),
	}, more...)})
}

// tokens is a login with tokens that a command prints, and how often it ran.
func tokens(t *testing.T, command string) (login *Login, ran func() int) {
	t.Helper()
	runs := filepath.Join(t.TempDir(), "runs")
	login, err := NewLogin("oauthbearer", "", credential.Command("eventlog.kafka.sasl.token_command",
		[]string{"sh", "-c", fmt.Sprintf("echo >> '%s'; %s", runs, command)}))
	must(t, err)
	return login, func() int {
		lines, err := os.ReadFile(runs)
		must(t, err)
		return bytes.Count(lines, []byte("\n"))
	}
}

// tokenFile is a login with the token that is in a file.
func tokenFile(t *testing.T, token string) (login *Login, file string, ran func() int) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(token), 0o600))
	login, ran = tokens(t, "cat '"+file+"'")
	return login, file, ran
}

// issue is a command that makes a jwt of admin, which lives for 2 s from when it runs: however long it took until then.
const issue = `printf '{"sub":"admin","iat":%s,"exp":%s}' $(date +%s.%3N) $(date -d '2 seconds' +%s.%3N) | base64 -w 0 |
tr -d = | sed 's/^/eyJhbGciOiJub25lIn0./; s/$/./'`

func TestTokensOfABroker(t *testing.T) {
	t.Parallel()
	cluster := bearers(t)
	t.Run("sessions end with their tokens and are renewed", func(t *testing.T) { shortTokens(t, cluster) })
	t.Run("a token that is refused is read again", func(t *testing.T) { refusedTokens(t, cluster) })
	t.Run("a token that is not there for a while does not end a session", func(t *testing.T) { absentTokens(t, cluster) })
}

// count is a Dial that counts.
func count(dialled *atomic.Int32) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// shortTokens: tokens live for 2 s, and so do the sessions that they open. Each is renewed on its connection with
// another token, and every record that is produced meanwhile is there once it was acknowledged.
func shortTokens(t *testing.T, cluster *testbed.KafkaCluster) {
	login, ran := tokens(t, issue)
	var dialled atomic.Int32
	c := client(t, Options{Brokers: cluster.Brokers(), Login: login, Dial: count(&dialled)})
	name := topic(t, c, 1)
	before := dialled.Load()
	sent := 0
	for end := time.After(8 * time.Second); ; sent++ {
		if _, err := c.Produce(t.Context(), name, 0, Record{Value: fmt.Append(nil, sent)}); err != nil {
			t.Fatalf("record %d: %v: %v", sent, Classify(err), err)
		}
		select {
		case <-end:
		default:
			continue
		}
		break
	}
	found := 0
	_, err := c.ReadAll(t.Context(), name, 0, func(r Record) error {
		if string(r.Value) != fmt.Sprint(found) {
			return fmt.Errorf("record %d is %s", found, r.Value)
		}
		found++
		return nil
	})
	must(t, err)
	if found != sent+1 {
		t.Errorf("%d records of %d", found, sent+1)
	}
	if n, read := dialled.Load()-before, ran(); n > 3 || read < 4 {
		t.Errorf("%d new connections, %d tokens: sessions were not renewed on their connections", n, read)
	}
	if c.User() != "admin" {
		t.Errorf("the user is %s", c.User())
	}
}

// refusedTokens: what a broker refuses is read again before it is a fault; a fault names the token's key and not the
// token.
func refusedTokens(t *testing.T, cluster *testbed.KafkaCluster) {
	expired := jwt("admin", -time.Hour)
	login, file, _ := tokenFile(t, expired)
	c := client(t, Options{Brokers: cluster.Brokers(), Login: login})
	_, err := c.Partitions(t.Context(), "t")
	if Classify(err) != Unauthenticated || !strings.Contains(err.Error(), "as admin (OAUTHBEARER)") ||
		!strings.Contains(err.Error(), "is the token of eventlog.kafka.sasl still valid") ||
		strings.Contains(err.Error(), expired) {
		t.Errorf("%v: %v", Classify(err), err)
	}
	// Its first reading is the old token, its second the new one.
	must(t, os.WriteFile(file+".2", []byte(jwt("admin", time.Hour)), 0o600))
	login, err = NewLogin("oauthbearer", "", credential.Command("k", []string{
		"sh", "-c", fmt.Sprintf("cat '%s'; mv '%s.2' '%s' 2>/dev/null || true", file, file, file),
	}))
	must(t, err)
	var dialled atomic.Int32
	c = client(t, Options{Brokers: cluster.Brokers(), Login: login, Dial: count(&dialled)})
	if _, err := c.ClusterID(t.Context(), "t"); err != nil || dialled.Load() < 2 {
		t.Errorf("%v after %d connections", err, dialled.Load())
	}
	must(t, os.Remove(file))
	c = client(t, Options{Brokers: cluster.Brokers(), Login: login})
	_, err = c.Partitions(t.Context(), "t")
	if Classify(err) != Transient || !strings.Contains(err.Error(), "k: the command sh printed nothing: cat: ") {
		t.Errorf("without a token: %v: %v", Classify(err), err)
	}
}

// absentTokens: the session lasts longer than the moment in which there is no token to renew it, and nothing that is
// produced fails.
func absentTokens(t *testing.T, cluster *testbed.KafkaCluster) {
	const life = 8 * time.Second
	login, file, ran := tokenFile(t, jwt("admin", life))
	var dialled atomic.Int32
	c := client(t, Options{Brokers: cluster.Brokers(), Login: login, Dial: count(&dialled)})
	name := topic(t, c, 1)
	produce := func() {
		for {
			_, err := c.Produce(t.Context(), name, 0, Record{Value: []byte("x")})
			if err == nil {
				return
			}
			// The library may want one more connection at any time, and there is no token for that.
			if Classify(err) != Transient || !strings.Contains(err.Error(), "log in to broker") {
				t.Fatalf("%v: %v", Classify(err), err)
			}
		}
	}
	produce()
	must(t, os.Remove(file))
	renewals := func() int { return ran() - int(dialled.Load()) }
	first := renewals()
	testbed.Eventually(t, time.Minute, "a renewal without a token", func() bool {
		produce()
		return renewals() > first
	})
	must(t, os.WriteFile(file, []byte(jwt("admin", time.Hour)), 0o600))
	for end := time.After(life / 2); ; { // past the end of the first session
		produce()
		select {
		case <-end:
		default:
			continue
		}
		break
	}
}

// A token is shown to nobody who might not be the broker, or over whose network it would go in clear.
func TestATokenIsNotShownOnTheWay(t *testing.T) {
	for _, at := range []struct {
		name     string
		remote   net.Addr
		verified bool
		ok       bool
	}{
		{"loopback", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, false, true},
		{"loopback, IPv6", &net.TCPAddr{IP: net.IPv6loopback}, false, true},
		{"elsewhere", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, false, false},
		{"elsewhere, verified", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, true, true},
		{"an address of another kind", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, false, false},
	} {
		for mechanism, shows := range map[string]bool{"oauthbearer": true, "plain": false, "scram-sha-256": false} {
			login, err := NewLogin(mechanism, "freshet", credential.Text(secret))
			must(t, err)
			raw := elsewhere{at.remote}
			k := &conn{Conn: raw, raw: raw, verified: at.verified, client: &Client{o: Options{Login: login}}, broker: "b:9092"}
			err = k.login(t.Context(), secret)
			if refused := Classify(err) == Untrusted; refused != (shows && !at.ok) {
				t.Errorf("%s, %s: %v", at.name, mechanism, err)
			}
		}
	}
}

// elsewhere is a connection to an address, on which nothing can be said.
type elsewhere struct{ at net.Addr }

var errElsewhere = errors.New("nothing can be said here")

func (e elsewhere) RemoteAddr() net.Addr             { return e.at }
func (elsewhere) LocalAddr() net.Addr                { return nil }
func (elsewhere) Read([]byte) (int, error)           { return 0, errElsewhere }
func (elsewhere) Write([]byte) (int, error)          { return 0, errElsewhere }
func (elsewhere) Close() error                       { return nil }
func (elsewhere) SetDeadline(time.Time) error        { return nil }
func (elsewhere) SetReadDeadline(time.Time) error    { return nil }
func (elsewhere) SetWriteDeadline(t time.Time) error { return nil }

func TestWhomATokenIsFor(t *testing.T) {
	encode := base64.RawURLEncoding.EncodeToString
	for token, want := range map[string]string{
		jwt("app", time.Hour): "app",
		"opaque":              "", "a.b.c": "", "a." + encode([]byte("[]")) + ".c": "", "": "",
		"a." + encode([]byte(`{"sub":7}`)) + ".c": "", "a." + encode([]byte(`{"iss":"x"}`)) + ".c": "",
	} {
		if got := subjectOf(token); got != want {
			t.Errorf("%q: %q, want %q", token, got, want)
		}
	}
	for _, token := range []string{secret + "\n", "Bearer " + secret, secret + "\x01auth=Bearer x"} {
		_, err := NewLogin("oauthbearer", "", credential.Text(token))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// Passwords for SCRAM are changed while records are produced, and all connections are cut each time.
func TestRotationsOfAPasswordLoseNoRecord(t *testing.T) {
	t.Parallel()
	const user = "alice"
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Proxied: true, Users: map[string]string{user: "old-" + secret}})
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("old-"+secret), 0o600))
	login, err := NewLogin("scram-sha-512", user, credential.File("eventlog.kafka.sasl.password_file", file))
	must(t, err)
	c := client(t, Options{Brokers: cluster.Brokers(), Login: login})
	name := topic(t, c, 1)
	acked := 0
	produce := func() {
		testbed.Eventually(t, 2*time.Minute, "a record is acknowledged", func() bool {
			_, err := c.Produce(t.Context(), name, 0, Record{Value: fmt.Append(nil, acked)})
			if err == nil {
				acked++
				return true
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the password is in %v", err)
			}
			return false
		})
	}
	for n := range testbed.Cut(10, 100) {
		password := fmt.Sprintf("%d-%s", n, secret)
		if n%2 == 0 {
			must(t, os.WriteFile(file, []byte(password), 0o600))
		}
		cluster.SetPassword(t, user, password)
		cluster.Broker(1).Proxy.Reset()
		if n%2 == 1 { // what is refused first is read again
			must(t, os.WriteFile(file, []byte(password), 0o600))
		}
		for range 5 {
			produce()
		}
	}
	next := 0 // some are there twice: those whose acknowledgement was cut off
	_, err = c.ReadAll(t.Context(), name, 0, func(r Record) error {
		if string(r.Value) == fmt.Sprint(next) {
			next++
		}
		return nil
	})
	must(t, err)
	if next != acked || acked == 0 {
		t.Errorf("%d records of %d", next, acked)
	}
}

// A certificate that is exchanged on disk, and the authority to trust, count from the next connection on, with the same
// client.
func TestCertificatesExchangedOnDiskCountAtTheNextConnection(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{TLS: true, ClientCerts: true})
	dir := t.TempDir()
	other := newAuthority(t, "other")
	chain, key := other.broker(t, time.Now().Add(time.Hour))
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) { must(t, os.WriteFile(at(name), []byte(text), 0o600)) }
	from := func(file string) string {
		text, err := os.ReadFile(file)
		must(t, err)
		return string(text)
	}
	put("ca", from(cluster.TLS.CA))
	put("cert", chain)
	put("key", key)
	c := client(t, Options{Brokers: cluster.Brokers(), TLS: config.TLS{
		Mode: config.TLSVerify, CAFile: at("ca"), CertFile: at("cert"), KeyFile: at("key"),
	}.Client("eventlog.kafka.tls")})
	// The library remembers what it failed with until it has asked again.
	ask := func(c *Client, want Class, says string) {
		t.Helper()
		testbed.Eventually(t, 2*time.Minute, want.String()+" "+says, func() bool {
			_, err := c.ClusterID(t.Context(), "t")
			return Classify(err) == want && (err == nil || strings.Contains(err.Error(), says))
		})
	}
	if _, err := c.ClusterID(t.Context(), "t"); err == nil {
		t.Error("a certificate of another authority is taken")
	}
	put("cert", from(cluster.TLS.Cert))
	ask(c, Transient, "eventlog.kafka.tls.cert_file: "+at("cert")+": tls: private key does not match")
	put("key", from(cluster.TLS.Key))
	ask(c, None, "")
	if c.User() != "CN=freshet" {
		t.Errorf("the user is %s", c.User())
	}
	put("ca", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.cert.Raw})))
	again := client(t, Options{Brokers: cluster.Brokers(), TLS: c.o.TLS})
	ask(again, Untrusted, "unknown authority")
	put("ca", from(cluster.TLS.CA))
	ask(again, None, "")
}
