package localcache

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

func TestAListenerForgetsWhatIsPublishedAndEverythingWithItsConnection(t *testing.T) {
	s := &shelf{t: t, server: testbed.Redis(t)}
	s.line = proxy.StartRESP(t, s.server.Addr)
	s.Cache = New(100, time.Hour, func(context.Context, string) (string, error) { return "v", nil })
	rdb := s.server.NewClient(&redis.Options{Addr: s.line.Addr(), MaxRetries: -1})
	l := Listener{Redis: rdb, Channel: "price-changed", Handler: s}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	failed := make(chan error, 100)
	running.Go(func() { l.Run(ctx, func(err error) { failed <- err }) })
	t.Cleanup(func() { cancel(); running.Wait(); testbed.Must(t, rdb.Close()) })
	held := func() bool { return s.reads("a") && s.reads("b") }

	testbed.Eventually(t, patience, "keys are held", held)
	s.server.Do(t, "PUBLISH", "price-changed", "a")
	s.forgets("a")
	if !s.reads("b") {
		t.Error("the other key was forgotten, too")
	}

	testbed.Eventually(t, patience, "keys are held", held)
	for name, breaks := range map[string]func(){
		"a connection that is reset": s.line.Reset,
		"a line that is dead":        func() { s.line.Stall(proxy.ToClient) },
	} {
		losses := s.losses()
		breaks()
		select {
		case err := <-failed:
			t.Logf("%s: %v", name, err)
		case <-time.After(patience):
			t.Fatalf("%s is not noticed", name)
		}
		testbed.Must(t, s.line.Resume())
		testbed.Eventually(t, patience, "it listens again after "+name, func() bool { return s.losses() > losses })
		s.forgets("b")
		testbed.Eventually(t, patience, "keys are held again", held)
	}
}
