package app

import (
	"context"
	"testing"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/doubttest"
)

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
