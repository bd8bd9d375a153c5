package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// Class is what an error of Kafka says about who is in trouble, and so about what helps.
type Class uint8

// The classes. Of all but None, [Transient] and [Ended] an operator must hear, since waiting alone does not help.
const (
	// None: no error.
	None Class = iota
	// Transient: the cluster is moving, slow or away: leaders and coordinators that move, too few replicas in sync,
	// broken connections, timeouts, throttling, a topic that was created a moment ago. The same attempt is made again,
	// forever. What was sent may have taken effect.
	Transient
	// OutOfRange: the partition does not hold the offset that was asked for. Records may be lost.
	OutOfRange
	// Missing: the topic, partition or group does not exist.
	Missing
	// Rejected: the brokers refuse what was sent, and will refuse it again: a record that is too large, settings or a
	// compression that they do not know. Nothing of it took effect.
	Rejected
	// Denied: the user lacks an ACL. Nothing took effect.
	Denied
	// Unauthenticated: the brokers do not take the user, the password or the mechanism.
	Unauthenticated
	// Untrusted: the connection could not be encrypted as asked: an unknown authority, a certificate for another name
	// or out of date, or one side encrypts and the other does not.
	Untrusted
	// Fenced: the consumer group goes on without this member, or in another generation. What it did for the group did
	// not take effect; it joins again.
	Fenced
	// Corrupt: what was read does not match its checksum, or is no Kafka record. It may pass once another replica
	// leads; until then nothing after it can be read.
	Corrupt
	// Ended: the caller's own context has ended, or the client was closed.
	Ended
)

// Classes returns all classes of errors, in the order of their numbers.
func Classes() []Class {
	return []Class{Transient, OutOfRange, Missing, Rejected, Denied, Unauthenticated, Untrusted, Fenced, Corrupt, Ended}
}

// String returns the class in one word, for logs and metrics.
func (c Class) String() string {
	switch c {
	case None:
		return "none"
	case Transient:
		return "transient"
	case OutOfRange:
		return "out_of_range"
	case Missing:
		return "missing"
	case Rejected:
		return "rejected"
	case Denied:
		return "denied"
	case Unauthenticated:
		return "unauthenticated"
	case Untrusted:
		return "untrusted"
	case Fenced:
		return "fenced"
	case Corrupt:
		return "corrupt"
	case Ended:
		return "ended"
	}
	return "class(" + strconv.Itoa(int(c)) + ")"
}

// Classify says what an error means. It knows those of [Client], and those of kafka-go that came past it. An error
// that is not known is [Transient], so that nothing is given up for it.
//
// A deadline that passed is [Transient], since it is mostly one attempt's own: a caller looks at its own context
// first. Kafka's "unknown topic or partition" by itself is [Missing]; the Client's methods look again before they
// say so, and call it [Transient] while the topic is only about to be known.
func Classify(err error) Class {
	if err == nil {
		return None
	}
	var told *Error
	if errors.As(err, &told) {
		return told.Class
	}
	var code kafka.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, errClosed), errors.Is(err, kafka.ErrGroupClosed):
		return Ended
	case errors.Is(err, kafka.InvalidReplicationFactor) && strings.Contains(err.Error(), "fenced"):
		// "All brokers are currently fenced": the controller has not heard of them for a moment, as when they start. That
		// they are too few it says in other words. Source: Apache Kafka, StripedReplicaPlacer.java.
		return Transient
	case errors.As(err, &code):
		return classifyCode(code)
	case errors.Is(err, protocol.ErrNoTopic), errors.Is(err, protocol.ErrNoPartition):
		return Missing
	case errors.Is(err, errCorrupt):
		return Corrupt
	case untrusted(err):
		return Untrusted
	}
	return Transient
}

// classifyCode sorts the error codes of the protocol. Source: https://kafka.apache.org/protocol#protocol_error_codes.
func classifyCode(code kafka.Error) Class {
	switch code {
	case kafka.OffsetOutOfRange, kafka.PositionOutOfRange:
		return OutOfRange
	case kafka.UnknownTopicOrPartition, kafka.GroupIdNotFound:
		return Missing
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidMessageSize, kafka.InvalidRecord,
		kafka.InvalidTimestamp, kafka.UnsupportedCompressionType, kafka.UnsupportedForMessageFormat,
		kafka.UnsupportedVersion, kafka.InvalidRequest, kafka.InvalidRequiredAcks, kafka.InvalidTopic,
		kafka.TopicAlreadyExists, kafka.InvalidPartitionNumber, kafka.InvalidReplicationFactor,
		kafka.InvalidReplicaAssignment, kafka.InvalidConfiguration, kafka.PolicyViolation,
		kafka.OffsetMetadataTooLarge, kafka.InvalidCommitOffsetSize, kafka.InvalidGroupId,
		kafka.InvalidSessionTimeout, kafka.InconsistentGroupProtocol, kafka.NonEmptyGroup:
		return Rejected
	case kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed,
		kafka.TransactionalIDAuthorizationFailed, kafka.DelegationTokenAuthorizationFailed:
		return Denied
	case kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.SASLAuthenticationFailed,
		kafka.DelegationTokenExpired, kafka.UnacceptableCredential:
		return Unauthenticated
	case kafka.IllegalGeneration, kafka.UnknownMemberId, kafka.RebalanceInProgress, kafka.FencedInstanceID,
		kafka.MemberIDRequired, kafka.InvalidProducerEpoch, kafka.ProducerFenced:
		return Fenced
	case kafka.InvalidMessage:
		return Corrupt
	}
	return Transient
}

// untrusted tells the failures of a TLS handshake, and of one that was missing, from those of the network.
func untrusted(err error) bool {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError // the server does not encrypt
	var alert tls.AlertError         // the server refuses us
	switch {
	case errors.As(err, &verify), errors.As(err, &authority), errors.As(err, &name), errors.As(err, &invalid):
		return true
	case errors.As(err, &header), errors.As(err, &alert):
		return true
	}
	// kafka-go's word for a server that encrypts when we do not; it has no value of its own.
	return errors.Is(err, io.ErrUnexpectedEOF) && strings.Contains(err.Error(), "expecting TLS")
}
