package broker

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"pgregory.net/rapid"
)

// However the library cuts up what it sends, the brokers get it byte by byte, except for the leave to create topics.
func TestNoRequestForMetadataThatIsSentMayCreateTopics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent, want bytes.Buffer
		write := func(to *bytes.Buffer, version int16, client string, m protocol.Message) {
			if err := protocol.WriteRequest(to, version, 7, client, m); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			client := rapid.SampledFrom([]string{"", "freshet"}).Draw(t, "client")
			if rapid.Bool().Draw(t, "another request") {
				m := &listoffsets.Request{
					ReplicaID: 0x00030006,
					Topics:    []listoffsets.RequestTopic{{Topic: "\x00\x03\x00\x06\x01"}},
				}
				write(&sent, 1, client, m)
				write(&want, 1, client, m)
				continue
			}
			m := &metadata.Request{AllowAutoTopicCreation: rapid.Bool().Draw(t, "create")}
			for i := range rapid.IntRange(-1, 5).Draw(t, "topics") {
				m.TopicNames = append(m.TopicNames, fmt.Sprint("topic", i, "\x01"))
			}
			version := int16(rapid.IntRange(0, 8).Draw(t, "version"))
			write(&sent, version, client, m)
			m.AllowAutoTopicCreation = false
			write(&want, version, client, m)
		}
		var r requests
		var got bytes.Buffer
		for p := sent.Bytes(); len(p) > 0; {
			n := rapid.IntRange(1, len(p)).Draw(t, "bytes of a write")
			part := bytes.Clone(p[:n])
			if err := r.write(&got, p[:n]); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(part, p[:n]) {
				t.Fatal("the caller's bytes are changed")
			}
			p = p[n:]
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("sent\n%q, instead of\n%q", got.Bytes(), want.Bytes())
		}
	})
}
