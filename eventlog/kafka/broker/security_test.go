package broker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/credential/credentialtest"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/segmentio/kafka-go"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	return a
}

// pool trusts the authority.
func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// broker returns a certificate for 127.0.0.1 that ends at a time, and its key, both PEM.
func (a *authority) broker(t *testing.T, end time.Time) (chain, key string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
	}, a.cert, &k.PublicKey, a.key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("CERTIFICATE", der) + text("CERTIFICATE", a.cert.Raw), text("PRIVATE KEY", private)
}

// session is how long a login lasts at the guarded broker.
const session = 2 * time.Second

// guarded starts a broker that demands TLS and a login, and knows ACLs. Its users are admin, who may everything, and
// freshet, who may nothing; their passwords are secret.
func guarded(t *testing.T, a *authority) *testbed.KafkaCluster {
	chain, key := a.broker(t, time.Now().Add(time.Hour))
	line := func(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }
	const scram = "=org.apache.kafka.common.security.scram.ScramLoginModule required;"
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Properties: []string{
		"listener.security.protocol.map=CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"ssl.keystore.type=PEM", "ssl.keystore.certificate.chain=" + line(chain), "ssl.keystore.key=" + line(key),
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.client.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required " +
			fmt.Sprintf("user_admin=%q user_freshet=%q;", secret, secret),
		"listener.name.client.scram-sha-256.sasl.jaas.config" + scram,
		"listener.name.client.scram-sha-512.sasl.jaas.config" + scram,
		fmt.Sprintf("connections.max.reauth.ms=%d", session.Milliseconds()),
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:admin;User:ANONYMOUS", // the testbed's own listener
	}})
	admin := client(t, Options{
		Brokers: cluster.Brokers(), TLS: credentialtest.Fixed(&tls.Config{RootCAs: a.pool()}),
		Login: login(t, "plain", "admin", secret),
	})
	salt := []byte("salt and pepper")
	for _, m := range []kafka.ScramMechanism{kafka.ScramMechanismSha256, kafka.ScramMechanismSha512} {
		res, err := admin.Kafka().AlterUserScramCredentials(t.Context(), &kafka.AlterUserScramCredentialsRequest{
			Upsertions: []kafka.UserScramCredentialsUpsertion{{
				Name: "freshet", Mechanism: m, Iterations: 4096, Salt: salt, SaltedPassword: salted(t, m, salt),
			}},
		})
		must(t, err)
		must(t, res.Results[0].Error)
	}
	return cluster
}

func login(t *testing.T, mechanism, user, password string) *Login {
	t.Helper()
	m, err := NewLogin(mechanism, user, credential.Text(password))
	must(t, err)
	return m
}

// TestAGuardedBroker asks one broker that demands TLS, a login and rights.
func TestAGuardedBroker(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	cluster := guarded(t, ours)
	t.Run("a refused client learns why", func(t *testing.T) { refusals(t, cluster, ours) })
	t.Run("the commands of missing rights give them", func(t *testing.T) { rights(t, cluster, ours) })
	t.Run("sessions are renewed", func(t *testing.T) { sessions(t, cluster, ours) })
}

// refusals goes through all that can be wrong with the encryption, the login and the rights.
func refusals(t *testing.T, cluster *testbed.KafkaCluster, ours *authority) {
	other := newAuthority(t, "other")
	open := testbed.SharedKafka(t).Brokers()
	trust := credentialtest.Fixed(&tls.Config{RootCAs: ours.pool()})
	const wrong = "n0t-the-0ne"
	for name, c := range map[string]struct {
		o    Options
		want Class
		says []string
	}{
		"plain": {
			Options{TLS: trust, Login: login(t, "plain", "freshet", secret)},
			Denied,
			[]string{"user freshet may not Write topic shop"},
		},
		"scram-sha-256": {
			Options{TLS: trust, Login: login(t, "scram-sha-256", "freshet", secret)},
			Denied,
			[]string{"user freshet may not Write topic shop"},
		},
		"scram-sha-512": {
			Options{TLS: trust, Login: login(t, "scram-sha-512", "freshet", secret)},
			Denied,
			[]string{"user freshet may not Write topic shop"},
		},
		"plain, wrong password": {
			Options{TLS: trust, Login: login(t, "plain", "freshet", wrong)},
			Unauthenticated,
			[]string{"as freshet (PLAIN)", "username and its password"},
		},
		"256, wrong password": {
			Options{TLS: trust, Login: login(t, "scram-sha-256", "freshet", wrong)},
			Unauthenticated,
			[]string{"as freshet (SCRAM-SHA-256)", "username and its password"},
		},
		"512, unknown user": {
			Options{TLS: trust, Login: login(t, "scram-sha-512", "nobody", wrong)},
			Unauthenticated,
			[]string{"as nobody (SCRAM-SHA-512)", "username and its password"},
		},
		"no login": {
			Options{TLS: trust},
			Unauthenticated,
			[]string{"may want a login: set eventlog.kafka.sasl"},
		},
		"a login nobody asked for": {
			Options{Brokers: open, Login: login(t, "plain", "freshet", secret)},
			Unauthenticated,
			[]string{"wants no login"},
		},
		"another authority": {
			Options{TLS: credentialtest.Fixed(&tls.Config{RootCAs: other.pool()}), Login: login(t, "plain", "freshet", secret)},
			Untrusted,
			[]string{"unknown authority", "ca_file"},
		},
		"another name": {
			Options{TLS: credentialtest.Fixed(&tls.Config{RootCAs: ours.pool(), ServerName: "kafka.example"})},
			Untrusted,
			[]string{"kafka.example", "server_name"},
		},
		"in the clear": {Options{}, Untrusted, []string{"encrypts on this port", "tls.mode"}},
		"a login in the clear": {
			Options{Login: login(t, "plain", "freshet", secret)},
			Untrusted,
			[]string{"encrypts on this port", "tls.mode"},
		},
		"encrypted, for once": {
			Options{Brokers: open, TLS: trust},
			Untrusted,
			[]string{"does this port encrypt?", "tls.mode"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.o.Brokers == nil {
				c.o.Brokers = cluster.Brokers()
			}
			k := client(t, c.o)
			_, err := k.Produce(t.Context(), "shop", 0, Record{Value: []byte("x")})
			refused(t, err, c.want, append(c.says, c.o.Brokers[0]))
			if c.want == Denied { // to whom the library's groups are refused, they are in the same way
				c.says[0] = "user freshet may not Read group g"
			}
			group, err := k.Group(kafka.ConsumerGroupConfig{ID: "g", Topics: []string{"shop"}})
			must(t, err)
			_, err = group.Next(t.Context())
			must(t, group.Close())
			if name != "no login" { // that it does not tell from a broker that goes away
				refused(t, k.Explain(t.Context(), "join group g", err, Need{"Read", "group", "g"}), c.want, c.says)
			}
		})
	}
}

// refused checks a refusal.
func refused(t *testing.T, err error, want Class, says []string) {
	t.Helper()
	if Classify(err) != want {
		t.Fatalf("%v: %v", Classify(err), err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v\ndoes not say %q", err, s)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "n0t-the-0ne") {
		t.Errorf("the password is in %v", err)
	}
}

func TestACertificateOutOfDateIsToldAsThat(t *testing.T) {
	ours := newAuthority(t, "ours")
	chain, key := ours.broker(t, time.Now().Add(-time.Minute))
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	must(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	c := client(t, Options{
		Brokers: []string{l.Addr().String()}, TLS: credentialtest.Fixed(&tls.Config{RootCAs: ours.pool()}),
	})
	_, err = c.Partitions(t.Context(), "shop")
	refused(t, err, Untrusted, []string{"expired", "renew the broker's certificate", "clock"})
	must(t, l.Close())
	<-done
}

// rights runs what the errors say, until freshet may do all that a reader needs.
func rights(t *testing.T, cluster *testbed.KafkaCluster, ours *authority) {
	c := client(t, Options{
		Brokers: cluster.Brokers(), TLS: credentialtest.Fixed(&tls.Config{RootCAs: ours.pool()}),
		Login: login(t, "scram-sha-512", "freshet", secret),
	})
	topics := ReaderTopics(Names{"shop"}, "main", Sizing{Partitions: 2})
	run := func(text string) {
		t.Helper()
		commands := regexp.MustCompile(`(?m)(kafka-\w+)\.sh --bootstrap-server \S+ --command-config client.properties (.*?)(, or .*)?$`).FindAllStringSubmatch(text, -1)
		if len(commands) == 0 {
			t.Fatalf("no command in %s", text)
		}
		tools := map[string]string{
			"kafka-acls": "org.apache.kafka.tools.AclCommand", "kafka-topics": "org.apache.kafka.tools.TopicCommand",
		}
		for _, c := range commands {
			cluster.Tool(t, tools[c[1]], strings.Fields(c[2])...)
		}
	}
	err := c.Ensure(t.Context(), topics, true) // may not see
	refused(t, err, Denied, []string{
		"user freshet may not even see 4 of 4",
		"--operation Read --operation Write --topic shop.checkpoint.main",
	})
	run(err.Error())
	err = c.Ensure(t.Context(), topics, true) // may not create
	refused(t, err, Denied, []string{"user freshet may not Create", "or let an operator create"})
	run(strings.SplitN(err.Error(), "\n", 2)[1]) // what the operator would do
	must(t, c.Ensure(t.Context(), topics, false))
	warnings, err := c.Fit(t.Context(), topics) // may not see how the topics are made, which holds up nobody
	must(t, err)
	if len(warnings) != len(topics) ||
		!strings.Contains(warnings[0].What, "user freshet may not DescribeConfigs topic shop") {
		t.Errorf("warnings: %+v", warnings)
	}

	for _, group := range []string{"freshet", Names{"shop"}.ReaderGroup("main")} {
		_, err = c.GroupMembers(t.Context(), group)
		refused(t, err, Denied, []string{"may not Describe group " + group})
	}
	// Read alone is not enough for who writes.
	cluster.Tool(t, "org.apache.kafka.tools.AclCommand", "--remove", "--force", "--allow-principal", "User:freshet",
		"--operation", "Write", "--topic", "shop")
	testbed.Eventually(t, 2*time.Minute, "the right's end", func() bool {
		_, err = c.Produce(t.Context(), "shop", 0, Record{Value: []byte("x")})
		return err != nil
	})
	refused(t, err, Denied, []string{"user freshet may not Write topic shop"})
	var fix []string
	for _, f := range c.Check(t.Context(), topics, true, "freshet") {
		if f.Fail {
			fix = append(fix, f.Fix)
		}
	}
	if len(fix) != 2 || !strings.Contains(fix[0], "--operation Read --group freshet") ||
		!strings.Contains(fix[1], "--operation Write --topic shop") {
		t.Fatalf("found %q", fix)
	}
	run(strings.Join(fix, "\n"))
	testbed.Eventually(t, 2*time.Minute, "the rights", func() bool {
		_, produced := c.Produce(t.Context(), "shop", 0, Record{Value: []byte("x")})
		_, joined := c.GroupMembers(t.Context(), "freshet")
		return produced == nil && Classify(joined) != Denied
	})
}

// sessions uses connections for several times as long as a login lasts. Nobody notices: not a request,
// and not the generation of a group, which has one connection for as long as it lives.
func sessions(t *testing.T, cluster *testbed.KafkaCluster, ours *authority) {
	var dialled atomic.Int32
	c := client(t, Options{
		Brokers: cluster.Brokers(), TLS: credentialtest.Fixed(&tls.Config{RootCAs: ours.pool()}),
		Login: login(t, "plain", "admin", secret),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	name := topic(t, c, 1)
	group, err := c.Group(kafka.ConsumerGroupConfig{
		ID: name, Topics: []string{name},
		HeartbeatInterval: 200 * time.Millisecond,
	})
	must(t, err)
	defer func() { must(t, group.Close()) }()
	var generation *kafka.Generation
	testbed.Eventually(t, 2*time.Minute, "a generation", func() bool {
		generation, err = group.Next(t.Context())
		return err == nil
	})
	ended := make(chan struct{})
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		close(ended)
	})
	before := dialled.Load()
	enough := time.After(3 * session)
	tick := time.NewTicker(session / 20)
	defer tick.Stop()
	for {
		if _, err := c.Produce(t.Context(), name, 0, Record{Value: []byte("x")}); err != nil {
			t.Errorf("%v: %v", Classify(err), err)
		}
		select {
		case <-tick.C:
			continue
		case <-ended:
			t.Error("the generation ended")
		case <-enough:
		}
		break
	}
	if n := dialled.Load() - before; n > 3 {
		t.Errorf("%d new connections", n)
	}
}

// salted returns what a broker keeps of the password (RFC 5802).
func salted(t *testing.T, m kafka.ScramMechanism, salt []byte) []byte {
	var out []byte
	var err error
	if m == kafka.ScramMechanismSha256 {
		out, err = pbkdf2.Key(sha256.New, secret, salt, 4096, sha256.Size)
	} else {
		out, err = pbkdf2.Key(sha512.New, secret, salt, 4096, sha512.Size)
	}
	must(t, err)
	return out
}
