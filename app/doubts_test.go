package app

import (
	"context"
	"testing"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/doubttest"
)

func TestADoubtConcernsTheProcessesWhoseKeysItIsAbout(t *testing.T) {
	c := &config.Config{Source: config.Source{Name: "shop"}, EventLog: config.EventLog{Kafka: config.Kafka{Group: "eu"}}}
	for _, x := range []struct {
		name                      string
		d                         doubt.Doubt
		whole, reader, invalidate bool
	}{
		{"everybody's", doubt.Doubt{}, true, true, true},
		{"our source's", doubt.Doubt{Source: "shop"}, true, true, true},
		{"another source's", doubt.Doubt{Source: "crm"}, true, false, true},
		{"our group's", doubt.Doubt{Group: "eu"}, true, false, true},
		{"our group's, of a source", doubt.Doubt{Source: "shop", Group: "eu"}, true, false, true},
		{"another group's", doubt.Doubt{Group: "us"}, false, false, false},
	} {
		for role, want := range map[Role]bool{Whole: x.whole, Reader: x.reader, Invalidator: x.invalidate} {
			p := &pipeline{config: c, options: Options{Role: role}}
			if got := p.concerns(&x.d); got != want {
				t.Errorf("%s, %s: %v", x.name, role, got)
			}
		}
	}
}

// silent is a topic that could not be read so far.
type silent struct{ doubttest.Memory }

func (*silent) Follow(ctx context.Context, _ func()) { <-ctx.Done() }

func TestTheStateIsNotFreshBeforeItIsKnownWhatIsInDoubt(t *testing.T) {
	book, err := doubt.New(&silent{}, nil, nil)
	must(t, err)
	p := &pipeline{config: &config.Config{}, doubts: book}
	s := Status{FreshAsOf: time.Now(), Redis: &RedisStatus{Up: true}}
	if state, sentence := p.judge(&s, ""); state != Starting {
		t.Fatalf("%s: %s", state, sentence)
	}
	must(t, book.Load(t.Context()))
	if state, sentence := p.judge(&s, ""); state != Fresh {
		t.Fatalf("%s: %s", state, sentence)
	}
}
