package doubts

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

// rig is a topic of doubts.
type rig struct {
	kafka *testbed.KafkaCluster
	topic broker.Topic
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRig(t *testing.T) *rig {
	k := testbed.SharedKafka(t)
	return &rig{k, broker.DoubtsTopic(broker.Names{Topic: k.NewTopicName(t)}, broker.Sizing{Replication: 1})}
}

// process is a keeper that follows the topic.
type process struct {
	*Keeper
	alarms *alarm.Board
	// changes has room for one: it is filled when what is kept has changed.
	changes chan struct{}
	kill    func()
}

func (r *rig) open(t *testing.T, change ...func(*Options)) *process {
	t.Helper()
	c, err := broker.New(broker.Options{Brokers: r.kafka.Brokers(), Timeout: 30 * time.Second})
	must(t, err)
	p := &process{changes: make(chan struct{}, 1)}
	p.alarms, err = alarm.New(slog.New(slog.DiscardHandler), nil)
	must(t, err)
	o := Options{
		Topic: r.topic.Name, Alarms: p.alarms,
		Ensure: func(ctx context.Context) error { return c.Ensure(ctx, []broker.Topic{r.topic}, true) },
	}
	for _, f := range change {
		f(&o)
	}
	p.Keeper, err = New(c, o)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		p.Follow(ctx, func() {
			select {
			case p.changes <- struct{}{}:
			default:
			}
		})
	})
	p.kill = sync.OnceFunc(func() {
		cancel()
		following.Wait()
		must(t, c.Close())
	})
	t.Cleanup(p.kill)
	return p
}

// list returns the ids of what is kept, sorted.
func (p *process) list(t *testing.T) (ids []string) {
	t.Helper()
	kept, err := p.Doubts(t.Context())
	must(t, err)
	for _, d := range kept {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

// await waits until these are kept.
func (p *process) await(t *testing.T, ids ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		is := p.list(t)
		if slices.Equal(is, ids) {
			return
		}
		select {
		case <-p.changes:
		case <-ctx.Done():
			t.Fatalf("kept are %v, want %v; alarms %+v", is, ids, p.alarms.Records())
		}
	}
}

func id(n int) string { return doubttest.Sample(n).ID }

func TestTheTopicKeepsDoubtsAsItShould(t *testing.T) {
	doubttest.Run(t, func(t *testing.T) doubttest.Rig {
		r := newRig(t)
		return doubttest.Rig{
			Open: func(t *testing.T) doubttest.Keeper {
				p := r.open(t)
				p.await(t, p.list(t)...)
				return p
			},
			Crash: func(_ *testing.T, k doubttest.Keeper) { k.(*process).kill() },
		}
	})
}

func TestEachProcessSeesWhatOthersWrite(t *testing.T) {
	r := newRig(t)
	a, b := r.open(t), r.open(t)
	a.await(t)
	b.await(t)
	must(t, a.PutDoubt(t.Context(), doubttest.Sample(1)))
	b.await(t, id(1))
	must(t, b.PutDoubt(t.Context(), doubttest.Sample(2)))
	must(t, b.SetFact(t.Context(), "redis/g", []byte("x")))
	a.await(t, id(1), id(2))
	must(t, b.SetFact(t.Context(), "redis/h", []byte("y")))
	must(t, b.SetFact(t.Context(), "else/g", []byte("z")))
	must(t, b.DropFact(t.Context(), "redis/g"))
	must(t, b.DropFact(t.Context(), "redis/none"))
	must(t, b.DropDoubt(t.Context(), id(1)))
	a.await(t, id(2))
	b.await(t, id(2))
	late := r.open(t)
	late.await(t, id(2))
	for _, p := range []*process{b, late} {
		facts, err := p.FactsUnder(t.Context(), "redis/")
		if err != nil || len(facts) != 1 || string(facts["redis/h"]) != "y" {
			t.Fatalf("%q, %v", facts, err)
		}
	}
}

func TestWhoCatchesUpKnowsWhatOthersHaveWritten(t *testing.T) {
	r := newRig(t)
	a, b := r.open(t), r.open(t)
	a.await(t)
	for n := range 20 {
		must(t, a.PutDoubt(t.Context(), doubttest.Sample(n)))
		must(t, b.CatchUp(t.Context()))
		if is := b.list(t); len(is) != n+1 {
			t.Fatalf("known are %v, want %d", is, n+1)
		}
	}
	r.kafka.DeleteTopic(t, r.topic.Name)
	must(t, insist(t, func() error { return b.CatchUp(t.Context()) }))
	must(t, insist(t, func() error { return a.PutDoubt(t.Context(), doubttest.Sample(20)) }))
	must(t, insist(t, func() error { return b.CatchUp(t.Context()) }))
	if !a.Deaf().IsZero() {
		t.Error("it is deaf")
	}
}

func TestManyProcessesWriteTheSameDoubtsAtOnce(t *testing.T) {
	r := newRig(t)
	var all []*process
	for range 4 {
		p := r.open(t)
		p.await(t)
		all = append(all, p)
	}
	var writing sync.WaitGroup
	for _, p := range all {
		writing.Go(func() {
			for n := range 20 {
				if err := p.PutDoubt(context.Background(), doubttest.Sample(n%10)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	var want []string
	for n := range 10 {
		want = append(want, id(n))
	}
	for _, p := range all {
		p.await(t, want...)
	}
}

func TestADoubtOfOthersIsNotListed(t *testing.T) {
	r := newRig(t)
	own := r.open(t, func(o *Options) {
		o.Concerns = func(d *doubt.Doubt) bool {
			return d.Group == "" ||
				d.Group == "eu"
		}
	})
	all := r.open(t)
	all.await(t)
	for n, group := range []string{"", "eu", "us"} {
		d := doubttest.Sample(n)
		d.Group = group
		must(t, all.PutDoubt(t.Context(), d))
	}
	all.await(t, id(0), id(1), id(2))
	own.await(t, id(0), id(1))
}

func TestWhatWasKnownIsWrittenAgainWhenTheTopicIsDeleted(t *testing.T) {
	r := newRig(t)
	a, b := r.open(t), r.open(t)
	a.await(t)
	for n := range 3 {
		must(t, a.PutDoubt(t.Context(), doubttest.Sample(n)))
	}
	must(t, a.DropDoubt(t.Context(), id(1)))
	must(t, a.SetFact(t.Context(), "f", []byte("x")))
	a.await(t, id(0), id(2))
	b.await(t, id(0), id(2))
	r.kafka.DeleteTopic(t, r.topic.Name)
	must(t, insist(t, func() error { return a.PutDoubt(t.Context(), doubttest.Sample(5)) }))
	a.await(t, id(0), id(2), id(5))
	b.await(t, id(0), id(2), id(5))
	a.kill()
	b.kill()
	c := r.open(t)
	c.await(t, id(0), id(2), id(5))
	if fact, err := c.Fact(t.Context(), "f"); err != nil || string(fact) != "x" {
		t.Fatalf("%q, %v", fact, err)
	}
}

// insist does what fails while the topic is made again, for up to a minute.
func insist(t *testing.T, do func() error) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func TestATopicThatIsMissingAndMayNotBeMadeIsSaid(t *testing.T) {
	r := newRig(t)
	var c *broker.Client
	p := r.open(t, func(o *Options) {
		c, _ = broker.New(broker.Options{Brokers: r.kafka.Brokers()})
		o.Ensure = func(ctx context.Context) error { return c.Ensure(ctx, []broker.Topic{r.topic}, false) }
	})
	defer func() {
		p.kill()
		must(t, c.Close())
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := p.Doubts(ctx); err == nil || !strings.Contains(err.Error(), r.topic.Name) {
		t.Fatal("what is kept is not known", err)
	}
	awaitAlarm(t, p, "--create --topic "+r.topic.Name)
	must(t, c.Ensure(t.Context(), []broker.Topic{r.topic}, true))
	p.await(t)
}

func awaitAlarm(t *testing.T, p *process, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		if slices.ContainsFunc(p.alarms.Records(), func(r alarm.Record) bool { return strings.Contains(r.Message, words) }) {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("no alarm says %q: %+v", words, p.alarms.Records())
		}
	}
}

func TestARecordThatCannotBeReadIsADoubt(t *testing.T) {
	r := newRig(t)
	p := r.open(t)
	p.await(t)
	begun := time.Now().Truncate(time.Millisecond)
	for key, value := range map[string]string{"doubt/x": "{", "doubt/y": `{"id":"z"}`, "else/x": "{}", "": "?"} {
		_, err := p.client.Produce(t.Context(), r.topic.Name, 0, broker.Record{Key: []byte(key), Value: []byte(value)})
		must(t, err)
	}
	p.await(t, "x", "y")
	kept, err := p.Doubts(t.Context())
	must(t, err)
	for _, d := range kept {
		if d.Cause != alarm.RecordUnreadable || !strings.Contains(d.Message, r.topic.Name) || d.Since.Before(begun) ||
			d.Since.After(time.Now()) || !d.Last.Equal(d.Since) {
			t.Errorf("%+v", d)
		}
	}
	must(t, p.DropDoubt(t.Context(), "x"))
	must(t, p.DropDoubt(t.Context(), "y"))
	p.await(t)
}

func TestTheTopicIsOneThatCheckFindsNothingWrongWith(t *testing.T) {
	r := newRig(t)
	p := r.open(t)
	p.await(t)
	for _, f := range p.client.Check(t.Context(), []broker.Topic{r.topic}, false) {
		if f.Fail || !strings.Contains(f.What, "one copy only") {
			t.Errorf("%+v", f)
		}
	}
}
