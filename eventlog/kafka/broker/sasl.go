package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// mechanism is a way to log in that knows whom it logs in. Its password is in the library's part only, and is printed
// nowhere.
type mechanism struct {
	sasl.Mechanism
	user string
}

// User returns whom it logs in.
func (m mechanism) User() string { return m.user }

// String returns mechanism and user, whatever verb prints it.
func (m mechanism) String() string { return m.Name() + " as " + m.user }

// Format keeps %+v and the like away from the password.
func (m mechanism) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, m.String()) }

// MarshalText keeps JSON away from it.
func (m mechanism) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Mechanism returns how to log in: "none" (nil: nobody logs in), "plain", "scram-sha-256" or "scram-sha-512", in upper
// or lower case. PLAIN sends the password itself, so it wants TLS. No error holds the password.
func Mechanism(name, user, password string) (sasl.Mechanism, error) {
	algo := scram.SHA256
	switch strings.ToLower(name) {
	case "", "none":
		return nil, nil
	case "plain":
		return mechanism{plain.Mechanism{Username: user, Password: password}, user}, nil
	case "scram-sha-256":
	case "scram-sha-512":
		algo = scram.SHA512
	default:
		return nil, fmt.Errorf("kafka: unknown SASL mechanism %q: use none, plain, scram-sha-256 or scram-sha-512", name)
	}
	m, err := scram.Mechanism(algo, user, password)
	if err != nil { // the library's words hold the password
		return nil, fmt.Errorf("kafka: user name or password of %q hold characters that SCRAM does not allow (RFC 4013)",
			user)
	}
	return mechanism{m, user}, nil
}

// login logs a new connection in, or one whose session is about to expire, and returns how long the session lasts; 0:
// forever. The requests are the same for both (KIP-368).
func (c *Client) login(ctx context.Context, conn net.Conn, broker string) (time.Duration, error) {
	host, _, _ := net.SplitHostPort(broker)
	pc := protocol.NewConn(conn, c.o.ClientID)
	pc.SetVersions(map[protocol.ApiKey]int16{protocol.SaslHandshake: 1, protocol.SaslAuthenticate: 1})
	if err := handshake(pc, c.o.SASL.Name()); err != nil {
		return 0, c.refusedLogin(broker, err)
	}
	session, state, err := c.o.SASL.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
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
		What: "log in to broker " + broker + " as " + c.User() + " (" + c.o.SASL.Name() + ")", Err: err,
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
