package testbed_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/freshet/freshet/proof/testbed"
)

// logins are the mechanisms by which the user can log in.
func logins(t *testing.T, user, password string) map[string]sasl.Mechanism {
	t.Helper()
	sha256, err := scram.Mechanism(scram.SHA256, user, password)
	testbed.Must(t, err)
	sha512, err := scram.Mechanism(scram.SHA512, user, password)
	testbed.Must(t, err)
	return map[string]sasl.Mechanism{
		"plain": plain.Mechanism{Username: user, Password: password}, "scram-sha-256": sha256,
		"scram-sha-512": sha512,
	}
}

func TestUsersLogInOverTLSAndDoWhatTheyMay(t *testing.T) {
	password := `p"a\s s=;`
	c := testbed.Kafka(t, testbed.KafkaOptions{
		TLS: true, ACL: true,
		Users: map[string]string{"admin": "a", "alice": password},
	})
	topic := c.Topic(t, c.NewTopicName(t), 1)
	addr := c.Brokers()[0]
	c.Allow(t, "alice", "topic:"+topic[:8]+"*", "write", "describe")
	for name, m := range logins(t, "alice", password) {
		if _, err := produceVia(t, &kafka.Transport{TLS: c.TLSConfig(), SASL: m}, addr, topic, 0, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, m := range logins(t, "alice", "wrong") {
		conn, err := (&kafka.Dialer{TLS: c.TLSConfig(), SASLMechanism: m}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, kafka.SASLAuthenticationFailed) {
			t.Errorf("%s with a wrong password: %v", name, err)
		}
	}
	alice := logins(t, "alice", password)["plain"]
	c.Revoke(t, "alice", "topic:"+topic[:8]+"*", "write")
	if _, err := produceVia(t, &kafka.Transport{TLS: c.TLSConfig(), SASL: alice}, addr, topic, 0, "x"); !errors.Is(err,
		kafka.TopicAuthorizationFailed) {
		t.Fatalf("without the right: %v", err)
	}
	admin := logins(t, "admin", "a")["scram-sha-512"]
	if _, err := produceVia(t, &kafka.Transport{TLS: c.TLSConfig(), SASL: admin}, addr, topic, 0, "x"); err != nil {
		t.Fatalf("admin: %v", err)
	}
	c.SetPassword(t, "admin", "b")
	admin = logins(t, "admin", "b")["scram-sha-256"]
	_, err := produceVia(t, &kafka.Transport{TLS: c.TLSConfig(), SASL: admin}, addr, topic, 0, "x")
	testbed.Must(t, err)
}

func TestOnlyClientsWithACertificateComeIn(t *testing.T) {
	c := testbed.Kafka(t, testbed.KafkaOptions{TLS: true, ClientCerts: true, ACL: true})
	topic := c.Topic(t, c.NewTopicName(t), 1)
	c.Allow(t, "CN=freshet", "topic:*", "write", "describe")
	pem, err := os.ReadFile(c.TLS.CA)
	testbed.Must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
	testbed.Must(t, err)
	_, err = produceVia(t, &kafka.Transport{TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}},
		c.Brokers()[0], topic, 0, "x")
	testbed.Must(t, err)
	conn, err := tls.Dial("tcp", c.Brokers()[0], &tls.Config{RootCAs: roots})
	if err == nil { // with TLS 1.3 the refusal comes after the client's last word
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Fatalf("without a certificate: %v", err)
	}
	if _, err := tls.Dial("tcp", c.Brokers()[0], &tls.Config{}); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Fatalf("without the authority: %v", err)
	}
}

func TestPasswordsWorkWithoutTLS(t *testing.T) {
	c := testbed.Kafka(t, testbed.KafkaOptions{Version: "4.1.0", Users: map[string]string{"alice": "pw"}, Proxied: true})
	topic := c.Topic(t, c.NewTopicName(t), 1)
	for name, m := range logins(t, "alice", "pw") {
		if _, err := produceVia(t, &kafka.Transport{SASL: m}, c.Brokers()[0], topic, 0, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOptionsThatGoTogetherAreAskedFor(t *testing.T) {
	for name, o := range map[string]testbed.KafkaOptions{
		"ACL without users":        {ACL: true, TLS: true},
		"certificates without TLS": {ClientCerts: true},
		"a user of two words":      {Users: map[string]string{"a b": "c"}},
		"a version of two numbers": {Version: "4.3"},
	} {
		if c, err := testbed.StartKafka(t.Context(), o); err == nil {
			t.Errorf("%s: started", name)
			testbed.Must(t, c.Close())
		}
	}
}
