package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/freshet/freshet/credential"
)

// Login says how to log in to the brokers, and as whom. It prints no secret.
type Login struct {
	// name is the mechanism as Kafka calls it.
	name   string
	user   string
	secret *credential.Source
	// start makes the library's part for a secret.
	start func(secret string) (sasl.Mechanism, error)
	// subject is whom the last token was for, as far as tokens say so.
	subject atomic.Pointer[string]
}

// NewLogin returns how to log in with a mechanism: "none" (nil: nobody logs in), "plain", "scram-sha-256",
// "scram-sha-512", or "oauthbearer", where the secret is a token and says by itself who the user is; in upper or lower
// case. The secret is read at each login. No error holds it.
func NewLogin(mechanism, user string, secret *credential.Source) (*Login, error) {
	l := &Login{name: strings.ToUpper(mechanism), user: user, secret: secret}
	switch l.name {
	case "", "NONE":
		return nil, nil
	case "PLAIN":
		l.start = func(password string) (sasl.Mechanism, error) {
			return plain.Mechanism{Username: user, Password: password}, nil
		}
	case "SCRAM-SHA-256":
		l.start = func(password string) (sasl.Mechanism, error) { return scramMechanism(scram.SHA256, user, password) }
	case "SCRAM-SHA-512":
		l.start = func(password string) (sasl.Mechanism, error) { return scramMechanism(scram.SHA512, user, password) }
	case bearerName:
		l.start = func(token string) (sasl.Mechanism, error) {
			m, err := newBearer(token)
			if err == nil {
				l.subject.Store(&m.subject)
			}
			return m, err
		}
	default:
		return nil, fmt.Errorf("kafka: unknown SASL mechanism %q: use none, plain, scram-sha-256, scram-sha-512 or oauthbearer",
			mechanism)
	}
	if secret.Changes() {
		return l, nil
	}
	_, err := l.start(secret.Reveal()) // what cannot be sent is found now
	return l, err
}

// scramMechanism is the library's, with an error that does not hold the password.
func scramMechanism(algo scram.Algorithm, user, password string) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(algo, user, password)
	if err != nil {
		return nil, fmt.Errorf("kafka: user name or password of %q hold characters that SCRAM does not allow (RFC 4013)",
			user)
	}
	return m, nil
}

// User returns whom it logs in; of a token, whom the last one was for.
func (l *Login) User() string {
	if subject := l.subject.Load(); subject != nil && *subject != "" {
		return *subject
	}
	if l.name == bearerName {
		return "(whom the token names)"
	}
	return l.user
}

// patience is for how much longer than others a login may take.
func (l *Login) patience() time.Duration {
	if l == nil {
		return 0
	}
	return l.secret.Patience()
}

// String returns mechanism and user, whatever verb prints it.
func (l *Login) String() string {
	if l == nil {
		return "none"
	}
	return l.name + " as " + l.User()
}

// Format keeps %+v and the like away from the secret.
func (l *Login) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, l.String()) }

// MarshalText keeps JSON away from it.
func (l *Login) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// login logs a new connection in, or one whose session is about to expire, and returns how long the session lasts; 0:
// forever. The requests are the same for both (KIP-368).
func (c *Client) login(ctx context.Context, conn net.Conn, broker, secret string) (time.Duration, error) {
	host, _, _ := net.SplitHostPort(broker)
	pc := protocol.NewConn(conn, c.o.ClientID)
	pc.SetVersions(map[protocol.ApiKey]int16{protocol.SaslHandshake: 1, protocol.SaslAuthenticate: 1})
	if err := handshake(pc, c.o.Login.name); err != nil {
		return 0, c.refusedLogin(broker, err)
	}
	mechanism, err := c.o.Login.start(secret)
	if err != nil {
		return 0, &Error{Class: Unauthenticated, What: "log in to broker " + broker, Err: err}
	}
	session, state, err := mechanism.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	if err != nil {
		return 0, c.refusedLogin(broker, err)
	}
	for {
		msg, err := pc.RoundTrip(&saslauthenticate.Request{AuthBytes: state})
		if err != nil {
			return 0, c.refusedLogin(broker, err)
		}
		res := msg.(*saslauthenticate.Response)
		if res.ErrorCode != 0 {
			return 0, c.refusedLogin(broker, saidNo{kafka.Error(res.ErrorCode), res.ErrorMessage})
		}
		done, next, err := session.Next(ctx, res.AuthBytes)
		if err != nil { // the broker could not show that it knows the password
			return 0, c.refusedLogin(broker,
				saidNo{kafka.SASLAuthenticationFailed, "the broker's answer does not fit: " + err.Error()})
		}
		if done {
			c.loggedIn.Store(true)
			return time.Duration(res.SessionLifetimeMs) * time.Millisecond, nil
		}
		state = next
	}
}

// handshake asks for a mechanism.
func handshake(pc *protocol.Conn, name string) error {
	msg, err := pc.RoundTrip(&saslhandshake.Request{Mechanism: name})
	if err != nil {
		return err
	}
	res := msg.(*saslhandshake.Response)
	switch {
	case res.ErrorCode == 0:
		return nil
	case len(res.Mechanisms) > 0:
		return saidNo{kafka.Error(res.ErrorCode), "the broker offers " + strings.Join(res.Mechanisms, ", ") + ", not " + name}
	}
	return kafka.Error(res.ErrorCode)
}

// saidNo is an error code with the broker's own words, or ours, instead of the library's general ones.
type saidNo struct {
	code kafka.Error
	text string
}

func (e saidNo) Error() string {
	if e.text == "" {
		return e.code.Error()
	}
	return e.text
}

func (e saidNo) Unwrap() error { return e.code }

// refusedLogin is the sentence for a login that failed.
func (c *Client) refusedLogin(broker string, err error) error {
	var told *Error
	if errors.As(err, &told) { // the connection's own
		return told
	}
	e := &Error{
		What: "log in to broker " + broker + " as " + c.User() + " (" + c.o.Login.name + ")", Err: err,
		Class: Classify(err),
	}
	switch {
	case errors.Is(err, kafka.UnsupportedSASLMechanism):
		e.Advice = "set eventlog.kafka.sasl.mechanism to one that it offers"
	case errors.Is(err, kafka.IllegalSASLState):
		e.Advice = "this listener wants no login here: set eventlog.kafka.sasl.mechanism to none, or use the port of its " +
			"SASL listener"
	case e.Class == Unauthenticated:
		e.Advice = "correct eventlog.kafka.sasl.username and its password"
		if c.o.Login.name == bearerName {
			e.Advice = "is the token of eventlog.kafka.sasl still valid, and for these brokers?"
		}
	case hungUp(err) && !c.loggedIn.Load():
		// A broker that has no SASL hangs up at the question; old ones do at a wrong password, too. After a login that
		// worked it is but a broker that goes away.
		e.Class, e.Err = Unauthenticated, errHungUp
		e.Advice = "it may have no SASL on this port, or not know the user: correct eventlog.kafka.sasl"
	case e.Class == Transient, e.Class == Ended:
		e.Class, e.Err = Transient, reason(err)
	}
	return e
}
