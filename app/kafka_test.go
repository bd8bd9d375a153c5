package app

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/eventlog/kafka/leader"
)

func TestTheMetricsOfAFormerTermAreNotShown(t *testing.T) {
	former := prometheus.NewRegistry()
	former.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "freshet_source_connected", Help: "As canal has it."}))
	status := leader.Status{Leading: true}
	p := &pipeline{registry: prometheus.NewRegistry(), leader: func() leader.Status { return status }}
	p.reading.Store(&reading{registry: former})
	shown := func() int {
		families, err := p.gather()
		must(t, err)
		return len(families)
	}
	if n := shown(); n != 1 {
		t.Errorf("the leader shows %d", n)
	}
	status = leader.Status{Standby: true}
	if n := shown(); n != 0 {
		t.Errorf("a standby that led before shows %d: it would look disconnected", n)
	}
	p.leader = nil
	if n := shown(); n != 1 {
		t.Errorf("without elections it shows %d", n)
	}
}

func TestAReaderThatIsChosenAndCannotTakeOverSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil)
		must(t, err)
		p := &pipeline{config: &config.Config{Source: config.Source{Name: "shop"}}, alarms: alarms}
		failed, recovered := p.termTrouble()
		passing := errors.New("connection refused")
		failed(passing)
		if got := alarms.Records(); len(got) != 0 {
			t.Errorf("an alarm for what passes: %+v", got)
		}
		<-time.After(termGrace)
		failed(passing)
		if got := alarms.Records(); len(got) != 1 || got[0].Kind != alarm.KafkaAway || !strings.Contains(got[0].Message, "source shop is not read") {
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
