package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

// stampedAroundKafka waits until Redis' stamp says that all that is in the topic is finished.
func (s *site) stampedAroundKafka() {
	s.t.Helper()
	s.asClient(func(c *broker.Client) {
		ends := map[int]int64{}
		for n := range topicPartitions {
			end, err := c.End(s.t.Context(), s.topic, n)
			testbed.Must(s.t, err)
			ends[n] = end
		}
		testbed.Eventually(s.t, patience, "redis is stamped", func() bool {
			at, err := kafka.ParsePlace([]byte(s.stamp()))
			for n, end := range ends {
				if at.Partitions[n].Offset < end {
					return false
				}
			}
			return err == nil
		})
	})
}

// asClient calls do with a client of the brokers.
func (s *site) asClient(do func(c *broker.Client)) {
	s.t.Helper()
	c, err := broker.New(broker.Options{Brokers: testbed.SharedKafka(s.t).Brokers()})
	testbed.Must(s.t, err)
	defer func() { testbed.Must(s.t, c.Close()) }()
	do(c)
}

// olderGroup is a site around Kafka, with two invalidators, whose Redis comes back with older data. It is seen through
// one of the invalidators.
type olderGroup struct {
	*older
	reader  *site
	members []*site
	running map[*site]*testbed.Running
}

func newOlderGroup(t *testing.T, source *testbed.Server, configure func(s *site)) *olderGroup {
	t.Helper()
	s := newSite(t, source).around(t, testbed.SharedKafka(t))
	configure(s)
	o := &olderGroup{
		older:  &older{site: s},
		reader: s.part("reader"), members: []*site{s.part("invalidator"), s.part("invalidator")},
		running: map[*site]*testbed.Running{},
	}
	o.launch(o.reader)
	o.startMembers()
	for id := range changed + untouched {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	s.stamped()
	return o
}

func asIs(*site) {}

func (o *olderGroup) launch(s *site) { o.running[s] = s.start(s.role) }

// startMembers starts the invalidators, and waits until they share the partitions.
func (o *olderGroup) startMembers() {
	o.t.Helper()
	for _, m := range o.members {
		o.launch(m)
	}
	o.site = o.members[0]
	testbed.Eventually(o.t, patience, "all partitions are shared", func() bool {
		n := 0
		for _, m := range o.members {
			st := m.status()
			if st == nil || len(st.Partitions) == 0 {
				return false
			}
			n += len(st.Partitions)
		}
		return n == topicPartitions
	})
}

// leads returns the member that has partition 0, and another.
func (o *olderGroup) leads() (leader, other *site) {
	o.t.Helper()
	for n, m := range o.members {
		if slices.ContainsFunc(m.status().Partitions, func(p app.PartitionStatus) bool { return p.ID == 0 }) {
			return m, o.members[1-n]
		}
	}
	o.t.Fatal("nobody has partition 0")
	return nil, nil
}

// slowly has keys forgotten slowly.
func slowly(s *site) { s.extra = "scope_rate: 20\n" }

// underWay waits until some keys are forgotten, and says which member leads then.
func (o *olderGroup) underWay() (leader, other *site) {
	o.t.Helper()
	testbed.Eventually(o.t, patience, "keys are forgotten", func() bool { return o.left() < changed+untouched-20 })
	leader, other = o.leads()
	if o.left() < untouched+20 {
		o.t.Error("all was done before anything was hurt")
	}
	return leader, other
}

func changesAreDoneAgainWhenRedisComesBackWithAnOldSnapshotAroundKafka(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		o := newOlderGroup(t, source, asIs)
		o.redis.Do(t, "save")
		o.change()
		o.restart()
		o.back()
		o.redone()
		o.restart() // from the same snapshot
		o.back()
		o.redone()
		undoubted(o.reader, o.members[0], o.members[1])
	})
}

func TestAroundKafkaChangesAreDoneAgainWhenRedisWentBackWhileAllWereDown(t *testing.T) {
	t.Parallel()
	o := newOlderGroup(t, testbed.MariaDB(t), asIs)
	o.redis.Do(t, "save")
	o.change()
	for _, m := range o.members {
		o.running[m].Kill9()
	}
	o.restart()
	o.back()
	o.startMembers()
	o.redone()
}

func changesAreDoneAgainWhenRedisLostTheEndOfItsLogAroundKafka(t *testing.T) {
	t.Parallel()
	o := newOlderGroup(t, testbed.MySQL(t), func(s *site) {
		s.redis = testbed.Redis(t, "--appendonly", "yes", "--appendfsync", "no")
	})
	file := o.log()
	info, err := os.Stat(file)
	testbed.Must(t, err)
	o.change()
	testbed.Must(t, o.redis.Kill())
	testbed.Must(t, os.Truncate(file, info.Size()))
	testbed.Must(t, o.redis.Start(t.Context()))
	o.back()
	o.redone()
}

// The next invalidator goes on where the one that was killed was, and where the one that was stopped was.
func TestARedoGoesOnInTheNextInvalidator(t *testing.T) {
	t.Parallel()
	for name, end := range testbed.SomeOf(t, map[string]func(r *testbed.Running){
		"killed":  func(r *testbed.Running) { r.Kill9() },
		"stopped": func(r *testbed.Running) { r.Stop(t, patience) },
	}) {
		t.Run(name, func(t *testing.T) {
			o := newOlderGroup(t, testbed.MySQL(t), slowly)
			o.redis.Do(t, "save")
			o.change()
			o.restart()
			o.back()
			leader, heir := o.underWay()
			end(o.running[leader])
			o.site = heir
			o.redone()
			o.reader.await("nothing is in doubt", func(st *app.Status) bool { return len(st.Doubts) == 0 })
		})
	}
}

// What a redo has not done yet, a snapshot from its middle lacks.
func aSnapshotFromTheMiddleOfARedoSaysWhereToBeginAroundKafka(t *testing.T) {
	t.Parallel()
	o := newOlderGroup(t, testbed.MySQL(t), slowly)
	o.redis.Do(t, "save")
	o.change()
	o.restart()
	o.underWay()
	o.redis.Do(t, "save")
	o.redone()
	o.restart()
	o.back()
	o.redone()
}

// The topic has no record of a TRUNCATE.
func TestAroundKafkaADoubtThatWasAnsweredIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	o := newOlderGroup(t, testbed.MySQL(t), asIs)
	before := o.stamp()
	o.redis.Do(t, "save")
	o.source.Exec(t, "TRUNCATE shop.product")
	for id := range changed + untouched {
		o.gone(fmt.Sprintf("product:%d", id))
	}
	undoubted(o.reader, o.members[0], o.members[1])
	testbed.Eventually(t, patience, "the stamp knows of the answer", func() bool { return o.stamp() != before })
	for range 2 {
		o.restart()
		o.back()
		for id := range changed + untouched {
			o.gone(fmt.Sprintf("product:%d", id))
		}
		undoubted(o.reader, o.members[0], o.members[1])
		o.kept("other:1")
	}
}

func TestAllKeysAreForgottenWhenTheTopicHasNotAll(t *testing.T) {
	t.Parallel()
	for name, lose := range testbed.SomeOf(t, map[string]func(o *olderGroup){
		"records are deleted": func(o *olderGroup) {
			o.asClient(func(c *broker.Client) {
				for n := range topicPartitions {
					end, err := c.End(t.Context(), o.topic, n)
					testbed.Must(t, err)
					testbed.Must(t, c.Trim(t.Context(), o.topic, n, end))
				}
			})
		},
		"the stamp makes no sense": func(o *olderGroup) {
			key := o.redis.Client().Keys(t.Context(), "freshet:stamp:*").Val()[0]
			o.redis.Do(t, "set", key, "garbage")
			o.redis.Do(t, "save")
		},
	}) {
		t.Run(name, func(t *testing.T) {
			o := newOlderGroup(t, testbed.MySQL(t), asIs)
			o.redis.Do(t, "save")
			o.change()
			for id := range changed {
				o.cache(fmt.Sprintf("product:%d", id))
			}
			lose(o)
			o.restart()
			o.back()
			o.forgotten()
		})
	}
}

func theOperatorSaysHowFarToGoBackAroundKafka(t *testing.T) {
	t.Parallel()
	o := newOlderGroup(t, testbed.MySQL(t), func(s *site) { s.redisMore = ", failover_window: 1h" })
	o.change()
	for id := range changed {
		o.cache(fmt.Sprintf("product:%d", id))
	}
	o.redis.Do(t, "save") // with a stamp that says that all is done
	o.restart()
	o.back()
	o.redone()
}

func anOperatorHasChangesDoneAgainAroundKafka(t *testing.T) {
	t.Parallel()
	o := newOlderGroup(t, testbed.MySQL(t), asIs)
	for id := changed; id < changed+untouched; id++ {
		o.write(id)
		o.gone(fmt.Sprintf("product:%d", id))
	}
	o.stamped()
	since := o.later()
	o.change()
	for id := range changed + untouched {
		o.cache(fmt.Sprintf("product:%d", id))
	}
	want := fmt.Sprintf("would forget %d keys\n  %d of shop.product\nfor example\n", changed, changed)
	if out := o.ask("redo", "--since", since, "--dry-run"); !strings.HasPrefix(out, want) {
		t.Errorf("%s\nwant %s", out, want)
	}
	if n := o.left(); n != changed+untouched {
		t.Errorf("%d keys are left after a dry run", n)
	}
	for _, m := range o.members { // wherever it is asked for
		for id := range changed {
			o.cache(fmt.Sprintf("product:%d", id))
		}
		if out := m.ask("redo", "--since", since, "--wait"); !strings.Contains(out, " is answered: ") {
			t.Error(out)
		}
		if n := o.left(); n != untouched {
			t.Errorf("%d keys are left, want %d", n, untouched)
		}
	}
	o.redone()
	o.reader.refused(exitFailed, []string{"ask an invalidator"}, "redo", "--since", "10m")
}

// A source that is gone for good says no more what everybody can see.
func TestAroundKafkaTheChangesOfASourceThatWasRemovedAreDoneAgain(t *testing.T) {
	t.Parallel()
	o := newOlderGroup(t, testbed.MariaDB(t), asIs)
	o.redis.Do(t, "save")
	o.change()
	o.running[o.reader].Stop(t, patience)
	for _, m := range o.members {
		o.running[m].Stop(t, patience)
	}
	o.asClient(func(c *broker.Client) {
		_, err := c.Produce(context.Background(), o.topic+".marks", 0, broker.Record{Key: []byte("default")})
		testbed.Must(t, err)
	})
	o.restart()
	o.back()
	o.startMembers()
	for id := range changed {
		o.gone(fmt.Sprintf("product:%d", id))
	}
	o.await("nothing is in doubt", func(st *app.Status) bool { return len(st.Doubts) == 0 })
	o.kept("other:1", fmt.Sprintf("product:%d", changed))
}
