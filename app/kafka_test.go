package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/retry"
)

func TestAReadingOfAFormerTermIsNotShown(t *testing.T) {
	last := &reading{}
	if current(leader.Status{Leading: true}, last) != last {
		t.Error("the leader does not show its own")
	}
	if current(leader.Status{Standby: true}, last) != nil {
		t.Error("a standby that led before would look disconnected")
	}
}

// Brokers may hang just when it is asked where the topic ends.
func TestWhoIsStoppedBeforeItKnowsWhereTheTopicEndsHasNotFailed(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer hung.Close()
	c := &config.Config{}
	c.EventLog.Kafka.Brokers, c.EventLog.Kafka.Topic = []string{hung.Addr().String()}, "invalidations"
	quiet := slog.New(slog.DiscardHandler)
	client, err := connect.Kafka(c, nil, quiet)
	must(t, err)
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		conn, err := hung.Accept()
		stop()
		if err == nil {
			conn.Close()
		}
	}()
	o := &otherReaders{brokers: &brokers{
		shared: &shared{config: c, options: Options{UntilCaughtUp: true, Log: quiet}},
		client: client,
	}}
	if caughtUp, err := o.Run(ctx); caughtUp || err != nil {
		t.Errorf("caught up %t, %v", caughtUp, err)
	}
}

func TestAReaderThatIsChosenAndCannotTakeOverSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil)
		must(t, err)
		p := &elected{brokers: &brokers{shared: &shared{
			config: &config.Config{Source: config.Source{Name: "shop"}},
			alarms: alarms,
		}}}
		take := retry.Loop{Reporter: p.termReporter()}
		failed, recovered := func(err error) { take.Failed(err) }, take.Succeeded
		passing := errors.New("connection refused")
		failed(passing)
		if got := alarms.Records(); len(got) != 0 {
			t.Errorf("an alarm for what passes: %+v", got)
		}
		<-time.After(broker.Grace)
		failed(passing)
		if got := alarms.Records(); len(got) != 1 || got[0].Kind != alarm.KafkaAway ||
			!strings.Contains(got[0].Message, "source shop is not read") {
			t.Errorf("after a while: %+v", got)
		}
		recovered()
		failed(passing)
		if got := alarms.Records(); got[0].Count != 1 {
			t.Errorf("after it went well: %+v", got)
		}
		failed(kafka.TopicAuthorizationFailed)
		if got := alarms.Records(); len(got) != 2 {
			t.Errorf("what does not pass by itself is said at once: %+v", got)
		}
	})
}
