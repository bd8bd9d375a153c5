package broker

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/segmentio/kafka-go"
)

func TestItInsistsOnWhatPassesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, told := 0, 0
		err := Insist(t.Context(), func(error) { told++ }, func() error {
			if tries++; tries < 5 {
				return io.ErrUnexpectedEOF
			}
			return kafka.TopicAuthorizationFailed
		})
		if !errors.Is(err, kafka.TopicAuthorizationFailed) || tries != 5 || told != 1 {
			t.Errorf("%v after %d tries, told %d times", err, tries, told)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := Insist(ctx, func(error) { cancel() }, func() error { return io.ErrUnexpectedEOF }); err == nil {
			t.Error("it gave up without an error")
		}
	})
}
