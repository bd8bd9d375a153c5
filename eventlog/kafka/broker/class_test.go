package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
)

// TestEveryErrorHasItsClass holds the errors as the library hands them on; those that only a running broker makes are
// captured in the tests that have one.
func TestEveryErrorHasItsClass(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		err  error
		want Class
	}{
		{nil, None},
		{errors.New("something new"), Transient},
		{io.EOF, Transient},
		{fmt.Errorf("kafka.(*Client).Fetch: %w", io.ErrUnexpectedEOF), Transient},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Transient},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, Transient},
		{&net.DNSError{IsNotFound: true}, Transient},
		{context.DeadlineExceeded, Transient},
		{kafka.Unknown, Transient},
		{kafka.LeaderNotAvailable, Transient},
		{fmt.Errorf("kafka.(*Client).Produce: %w", kafka.NotLeaderForPartition), Transient},
		{kafka.RequestTimedOut, Transient},
		{kafka.BrokerNotAvailable, Transient},
		{kafka.NetworkException, Transient},
		{kafka.GroupLoadInProgress, Transient},
		{kafka.GroupCoordinatorNotAvailable, Transient},
		{kafka.NotCoordinatorForGroup, Transient},
		{kafka.NotEnoughReplicas, Transient},
		{kafka.NotEnoughReplicasAfterAppend, Transient},
		{kafka.NotController, Transient},
		{kafka.KafkaStorageError, Transient},
		{kafka.FencedLeaderEpoch, Transient},
		{kafka.UnknownLeaderEpoch, Transient},
		{kafka.ThrottlingQuotaExceeded, Transient},
		{kafka.Error(999), Transient},
		{produceapi.NewError(protocol.NewErrNoLeader("t", 1)), Transient},
		{kafka.OffsetOutOfRange, OutOfRange},
		{kafka.UnknownTopicOrPartition, Missing},
		{produceapi.NewError(protocol.NewErrNoTopic("t")), Missing},
		{protocol.NewErrNoPartition("t", 3), Missing},
		{kafka.GroupIdNotFound, Missing},
		{fmt.Errorf("%w: too large by far", kafka.MessageSizeTooLarge), Rejected},
		{fmt.Errorf("%w: Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
			kafka.InvalidReplicationFactor), Transient},
		{fmt.Errorf("%w: Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "+
			"because only 1 broker(s) are registered.", kafka.InvalidReplicationFactor), Rejected},
		{kafka.MessageTooLargeError{}, Rejected},
		{kafka.RecordListTooLarge, Rejected},
		{kafka.InvalidRecord, Rejected},
		{kafka.UnsupportedCompressionType, Rejected},
		{kafka.UnsupportedVersion, Rejected},
		{kafka.InvalidConfiguration, Rejected},
		{kafka.OffsetMetadataTooLarge, Rejected},
		{kafka.TopicAuthorizationFailed, Denied},
		{kafka.GroupAuthorizationFailed, Denied},
		{kafka.ClusterAuthorizationFailed, Denied},
		{kafka.SASLAuthenticationFailed, Unauthenticated},
		{kafka.UnsupportedSASLMechanism, Unauthenticated},
		{kafka.IllegalSASLState, Unauthenticated},
		{x509.UnknownAuthorityError{}, Untrusted},
		{
			fmt.Errorf("x: %w", &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}}}),
			Untrusted,
		},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, Untrusted},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, Untrusted},
		{fmt.Errorf("%w: broker appears to be expecting TLS", io.ErrUnexpectedEOF), Untrusted},
		{kafka.IllegalGeneration, Fenced},
		{kafka.UnknownMemberId, Fenced},
		{kafka.RebalanceInProgress, Fenced},
		{kafka.FencedInstanceID, Fenced},
		{kafka.InvalidMessage, Corrupt},
		{fmt.Errorf("%w: at offset 7", errCorrupt), Corrupt},
		{ended.Err(), Ended},
		{kafka.ErrGroupClosed, Ended},
		{errClosed, Ended},
		{fmt.Errorf("x: %w", &Error{Class: Denied, Err: io.EOF}), Denied},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
	}
}

func TestEveryClassHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{None.String(): true}
	for _, c := range Classes() {
		if seen[c.String()] {
			t.Errorf("%d is called %s, as another one is", c, c)
		}
		seen[c.String()] = true
	}
	if len(seen) != int(Ended)+1 {
		t.Errorf("Classes has %d of %d", len(seen)-1, Ended)
	}
}
