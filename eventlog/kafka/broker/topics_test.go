package broker

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func debugLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// all returns all topics that freshet needs.
func all(n Names, s Sizing) []Topic {
	delays := []time.Duration{10 * time.Second, time.Minute, time.Minute}
	return append(ReaderTopics(n, "main", s), InvalidatorTopics(n, "freshet", delays, s)...)
}

func TestTheTopicsOfEachRole(t *testing.T) {
	var got []string
	for _, topic := range distinct(all(Names{"shop"}, Sizing{Partitions: 3})) {
		got = append(got, topic.Name)
	}
	want := []string{
		"shop", "shop.marks", "shop.doubts", "shop.checkpoint.main", "shop.freshet.retry.10s",
		"shop.freshet.retry.1m", "shop.freshet.dlq",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestEnsureCreatesWhatIsMissingOnce(t *testing.T) {
	topics := all(names(t), Sizing{Partitions: 3})
	var together sync.WaitGroup
	for range 3 { // readers and invalidators that start at the same time
		c := client(t, Options{})
		together.Go(func() {
			if err := c.Ensure(t.Context(), topics, true); err != nil {
				t.Error(err)
				return
			}
			for _, topic := range topics { // what is ready takes records at once
				for p := range topic.Partitions {
					if _, err := c.Produce(t.Context(), topic.Name, p, Record{Key: []byte("k"), Value: []byte("v")}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	together.Wait()
	c := client(t, Options{})
	if n, err := c.Partitions(t.Context(), topics[0].Name); n != 3 || err != nil {
		t.Errorf("%d partitions, %v", n, err)
	}
	// As freshet makes them, there is nothing to complain of, but that there is only one broker.
	for _, f := range c.Check(t.Context(), topics, true) {
		if f.Fail || !strings.Contains(f.What, "has one copy only") {
			t.Errorf("%+v", f)
		}
	}
}

func TestEnsureSaysHowToCreateWhatItMayNot(t *testing.T) {
	c := client(t, Options{})
	n := names(t)
	err := c.Ensure(t.Context(), all(n, Sizing{Partitions: 3}), false)
	if Classify(err) != Missing {
		t.Fatalf("%v: %v", Classify(err), err)
	}
	for _, name := range []string{
		n.Topic, n.Marks(), n.Doubts(), n.Checkpoint("main"), n.Retry("freshet", time.Minute),
		n.DeadLetters("freshet"),
	} {
		if strings.Count(err.Error(), " --create --topic "+name+" ") != 1 {
			t.Errorf("%v\nhas no command for %s", err, name)
		}
	}
	for _, create := range []bool{true, false} {
		for _, f := range c.Check(t.Context(), all(n, Sizing{}), create) {
			if f.Fail == create || !strings.Contains(f.What, "does not exist") || !strings.Contains(f.Fix, "--create") {
				t.Errorf("%+v", f)
			}
		}
	}
	found := c.Check(t.Context(), []Topic{{Name: n.Topic, Partitions: 1, Replication: 99}}, true)
	if len(found) != 1 || !found[0].Fail || !strings.Contains(found[0].What, "eventlog.kafka.replication_factor") {
		t.Errorf("%+v", found)
	}
}

func TestEnsureTellsWhatTheBrokersRefuse(t *testing.T) {
	c := client(t, Options{})
	err := c.Ensure(t.Context(), []Topic{{Name: names(t).Topic, Partitions: 1, Replication: 99}}, true)
	if Classify(err) != Rejected || !strings.Contains(err.Error(), "eventlog.kafka.replication_factor") {
		t.Errorf("%v: %v", Classify(err), err)
	}
	err = c.Ensure(t.Context(), []Topic{{Name: "spaces are not allowed", Partitions: 1}}, true)
	if Classify(err) != Rejected {
		t.Errorf("%v: %v", Classify(err), err)
	}
}

// TestCheckFindsWhatWouldLoseRecords sets each topic wrong in its own way.
func TestCheckFindsWhatWouldLoseRecords(t *testing.T) {
	c := client(t, Options{})
	n := names(t)
	wrong := func(name string, partitions int, config ...Setting) Topic {
		return Topic{Name: name, Partitions: partitions, Config: config}
	}
	must(t, c.Ensure(t.Context(), []Topic{
		wrong(n.Topic, 2, Setting{"cleanup.policy", "compact,delete"}, Setting{"retention.ms", "3600000"},
			Setting{"retention.bytes", "1000000"},
			Setting{"max.message.bytes", "100000"}, Setting{"unclean.leader.election.enable", "true"},
			Setting{"min.insync.replicas", "2"}),
		wrong(n.Marks(), 2),
		wrong(n.Checkpoint("main"), 1, Setting{"cleanup.policy", "delete"}),
		wrong(n.Doubts(), 1, Setting{"cleanup.policy", "delete"}),
		wrong(n.Retry("freshet", 10*time.Second), 1, Setting{"retention.ms", "60000"}),
		wrong(n.DeadLetters("freshet"), 1, Setting{"cleanup.policy", "compact,delete"}),
	}, true))
	found := c.Check(t.Context(),
		slices.DeleteFunc(all(n, Sizing{Partitions: 12}), func(t Topic) bool { return t.Delay == time.Minute }), true)
	for _, want := range []struct {
		fail      bool
		what, fix string
	}{
		{true, n.Topic + " has cleanup.policy compact,delete", "cleanup.policy=delete"},
		{false, n.Topic + " keeps records for 1h0m0s", "retention.ms=604800000"},
		{false, n.Topic + " keeps 1000000 bytes", "retention.bytes=-1"},
		{true, n.Topic + " takes records of up to 100000 bytes", "max.message.bytes=2097152"},
		{true, n.Topic + " lets a replica lead that lacks", "unclean.leader.election.enable=false"},
		{true, n.Topic + " has 1 copies and wants 2", "min.insync.replicas=1"},
		{false, n.Topic + " has 2 partitions, not 12", ""},
		{true, n.Marks() + " has 2 partitions", "--partitions 1"},
		{false, n.Marks() + " has cleanup.policy delete", "cleanup.policy=compact"},
		{true, n.Checkpoint("main") + " has cleanup.policy delete", "cleanup.policy=compact"},
		{true, n.Doubts() + " has cleanup.policy delete", "cleanup.policy=compact"},
		{true, n.Retry("freshet", 10*time.Second) + " removes keys", "retention.ms=-1"},
		{true, n.DeadLetters("freshet") + " has cleanup.policy compact,delete", "cleanup.policy=compact"},
	} {
		if !slices.ContainsFunc(found, func(f Finding) bool {
			return f.Fail == want.fail && strings.Contains(f.What, want.what) && strings.Contains(f.Fix, want.fix)
		}) {
			t.Errorf("not found: %+v\nin %+v", want, found)
		}
	}
	// What is a failure there stops a start, and all of it at once.
	warnings, err := c.Fit(t.Context(),
		slices.DeleteFunc(all(n, Sizing{Partitions: 12}), func(t Topic) bool { return t.Delay == time.Minute }))
	if Classify(err) != Rejected {
		t.Fatalf("%v: %v", Classify(err), err)
	}
	for _, f := range found {
		if f.Fail && !(strings.Contains(err.Error(), strings.TrimPrefix(f.What, "kafka: ")) &&
			strings.Contains(err.Error(), f.Fix)) {
			t.Errorf("%v\ndoes not say %+v", err, f)
		}
		if !f.Fail && !slices.Contains(warnings, f) && !strings.Contains(f.What, "forgets the offsets") {
			t.Errorf("%+v\ndoes not warn of %+v", warnings, f)
		}
	}
}

func TestTopicsAsFreshetMakesThemFit(t *testing.T) {
	c := client(t, Options{})
	topics := all(names(t), Sizing{Partitions: 3})
	must(t, c.Ensure(t.Context(), topics, true))
	_, err := c.Fit(t.Context(), topics)
	must(t, err)
}

func TestCheckNamesABrokerThatCannotBeReached(t *testing.T) {
	good := client(t, Options{})
	c := client(t, Options{Brokers: append(slices.Clone(good.o.Brokers), "127.0.0.1:1")})
	found := c.Check(t.Context(), nil, true)
	if len(found) != 1 || !found[0].Fail || !strings.Contains(found[0].What, "127.0.0.1:1") {
		t.Errorf("%+v", found)
	}
}
