package broker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"github.com/segmentio/kafka-go/sasl"
)

// bearerName is the mechanism that takes a token.
const bearerName = "OAUTHBEARER"

// bearer logs in with a token, which it does not look into, but for whom it names.
// Source: RFC 7628, "A Set of SASL Mechanisms for OAuth", sections 3.1 and 3.2.3.
type bearer struct{ token, subject string }

// newBearer checks that a token can be sent: RFC 6750, section 2.1, says of which characters it is.
func newBearer(token string) (bearer, error) {
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f {
			return bearer{}, errors.New("what eventlog.kafka.sasl has as a token is none: it holds blanks, line breaks or other " +
				"characters that no token has")
		}
	}
	return bearer{token, subjectOf(token)}, nil
}

// subjectOf returns whom a token is for if it is a JWT that says so, and "" otherwise. Kafka calls a user by that name
// unless its settings name another claim (sasl.oauthbearer.sub.claim.name).
func subjectOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return ""
	}
	var of struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(claims, &of) != nil {
		return ""
	}
	return of.Subject
}

// Name implements [sasl.Mechanism].
func (bearer) Name() string { return bearerName }

// Start implements [sasl.Mechanism].
func (b bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	return bearer{}, []byte("n,,\x01auth=Bearer " + b.token + "\x01\x01"), nil
}

// Next implements [sasl.StateMachine]. A broker that refuses the token first says why, and refuses the login only once
// that has been acknowledged.
func (bearer) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	return false, []byte{1}, nil
}
