package app

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/retry"
)

func TestTheStateIsAWordAndASentence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{
			Source:      config.Source{Heartbeat: time.Second},
			Invalidator: config.Invalidator{SecondDelete: 2 * time.Second},
			Mappings:    []spec.Mapping{{SecondDelete: 10 * time.Second}, {SecondDelete: time.Second}},
		}
		after := behindAfter(c, 0)
		if after != 26*time.Second {
			t.Errorf("behind after %s", after)
		}
		now := time.Now()
		moving := &RedisStatus{
			Address: "cluster cache-1:6379", Up: true,
			Nodes: []invalidator.NodeStatus{{Up: true, Moving: 1}, {Up: true, Moving: 2}},
		}
		well := Status{
			FreshAsOf:     now.Add(-300 * time.Millisecond),
			Source:        &SourceStatus{Address: "db:3306", Connected: true},
			Redis:         &RedisStatus{Up: true, Sentence: "redis cache:6379 answers"},
			circumstances: circumstances{group: "cache", behindAfter: after},
		}
		for _, x := range []struct {
			name     string
			change   func(*Status)
			waiting  string
			state    State
			sentence string
		}{
			{"well", func(*Status) {}, "", Fresh, "all that was committed until 300ms ago is finished, final deletes included"},
			{
				"not connected yet", func(s *Status) { s.Source, s.FreshAsOf = &SourceStatus{Address: "db:3306"}, time.Time{} }, "",
				Starting, "connecting to the source db:3306",
			},
			{
				"backlog", func(s *Status) { s.FreshAsOf = time.Time{} }, "", Starting,
				"reading what was committed while freshet was away",
			},
			{
				"source lost", func(s *Status) { s.Source = &SourceStatus{Address: "db:3306"} }, "", Behind,
				"the source db:3306 is not connected; trying again",
			},
			{
				"redis away", func(s *Status) { s.Redis = &RedisStatus{Sentence: "redis cache:6379 does not answer"} }, "", Behind,
				"redis cache:6379 does not answer; reading pauses and nothing is lost",
			},
			{
				"a node of several away", func(s *Status) {
					s.Redis = &RedisStatus{
						Sentence: "1 of 2 nodes are away: cache-1:6379 does not answer",
						Nodes:    []invalidator.NodeStatus{{}, {Up: true}},
					}
				}, "", Behind,
				"1 of 2 nodes are away: cache-1:6379 does not answer; their keys wait and nothing is lost, those of other nodes " +
					"go on",
			},
			{
				"all nodes away", func(s *Status) {
					s.Redis = &RedisStatus{Sentence: "2 of 2 nodes are away", Nodes: []invalidator.NodeStatus{{}, {}}}
				}, "", Behind,
				"2 of 2 nodes are away; reading pauses and nothing is lost",
			},
			{
				"slots without a node", func(s *Status) {
					s.Redis = &RedisStatus{Address: "cluster cache-1:6379", Up: true, Unserved: 3}
				}, "", Behind,
				"no node of cluster cache-1:6379 has 3 of its slots, so their keys wait",
			},
			{"redis away at the start", func(s *Status) {
				s.FreshAsOf, s.Redis = time.Time{}, &RedisStatus{Sentence: "redis cache:6379 does not answer"}
			}, "", Behind, "redis cache:6379 does not answer"},
			{"just not behind", func(s *Status) { s.FreshAsOf = now.Add(-26 * time.Second) }, "", Fresh, "until 26s ago"},
			{
				"behind", func(s *Status) { s.FreshAsOf = now.Add(-27 * time.Second) }, "", Behind,
				"nothing newer than 27s ago is known to be finished; catching up",
			},
			{
				"another server takes writes", func(s *Status) {
					s.Source = &SourceStatus{Address: "db-1:3306", Connected: true, Apart: "db-2:3306"}
				}, "", Behind,
				"what is written on db-2:3306 does not come to db-1:3306, which is read",
			},
			{
				"the address leads to another server", func(s *Status) {
					s.Source = &SourceStatus{Address: "db-1:3306", Connected: true, Apart: "db-1:3306"}
				}, "", Behind,
				"the address db-1:3306 leads to another server than the one that is read",
			},
			{
				"no new connection to the source", func(s *Status) {
					s.Source = &SourceStatus{Address: "db-1:3306", Connected: true, Unheard: "i/o timeout"}
				}, "", Behind,
				"no new connection to the source db-1:3306 comes about (i/o timeout)",
			},
			{
				"another server takes writes at the start", func(s *Status) {
					s.Source, s.FreshAsOf = &SourceStatus{Address: "db-1:3306", Connected: true, Apart: "db-2:3306"}, time.Time{}
				}, "", Behind,
				"what is written on db-2:3306 does not come to db-1:3306, which is read",
			},
			{
				"rate limited", func(s *Status) { s.FreshAsOf, s.RateLimited = now.Add(-27*time.Second), 5 }, "", Behind,
				"nothing newer than 27s ago is known to be finished: 5 keys wait for the rate_limit of their mapping; catching up",
			},
			{
				"queries are slow", func(s *Status) { s.FreshAsOf, s.RateLimited, s.RebuildQueue = now.Add(-27*time.Second), 5, 7 },
				"", Behind,
				": 5 keys wait for the rate_limit of their mapping, 7 keys wait for a query to begin; catching up",
			},
			{
				"slots are being moved", func(s *Status) {
					s.FreshAsOf, s.Redis = now.Add(-27*time.Second), moving
				}, "", Behind,
				"is known to be finished: 3 slots of cluster cache-1:6379 are being moved, so some of their keys wait until that is " +
					"over (if nobody moves them: redis-cli --cluster fix); catching up",
			},
			{
				"slots are being moved for so long that reading waits", func(s *Status) {
					s.FreshAsOf, s.Redis = now.Add(-27*time.Second), moving
				}, "too many keys are pending", Behind,
				"is known to be finished: too many keys are pending, 3 slots of cluster cache-1:6379 are being moved",
			},
			{
				"slots are being moved at the start", func(s *Status) { s.FreshAsOf, s.Redis = time.Time{}, moving }, "", Starting,
				"reading what was committed while freshet was away: 3 slots of cluster cache-1:6379 are being moved",
			},
			{"slots are being moved for a moment", func(s *Status) { s.Redis = moving }, "", Fresh, "until 300ms ago"},
			{"rate limited for a moment", func(s *Status) { s.RateLimited = 5 }, "", Fresh, "until 300ms ago"},
			{
				"held up", func(s *Status) { s.FreshAsOf = now.Add(-time.Minute) }, "the store is full", Behind,
				"nothing newer than 1m0s ago is known to be finished: the store is full, so reading waits",
			},
			{"held up for a moment", func(*Status) {}, "too many keys in flight", Fresh, "until 300ms ago"},
			{
				"parked", func(s *Status) { s.Parked = 2 }, "", Doubtful,
				"but for 2 keys in trouble that may be stale: they are tried again later",
			},
			{
				"standby", func(s *Status) { s.Standby, s.Source, s.Redis = true, &SourceStatus{Name: "shop"}, nil }, "", Standby,
				"another reader of the source shop leads",
			},
			{
				"does not know who leads", func(s *Status) { s.Standby, s.joining, s.Keys, s.Redis = true, true, 0, nil }, "",
				Starting, "joining the consumer group",
			},
			{
				"lost its partitions", func(s *Status) { s.joining, s.Keys, s.Source = true, 7, nil }, "", Behind,
				"the consumer group in Kafka cannot be reached",
			},
			{
				"a spare", func(s *Status) { s.spare, s.Source, s.FreshAsOf = true, nil, time.Time{} }, "", Standby,
				"the other invalidators of group cache have them all",
			},
			{"a spare that reads", func(s *Status) { s.spare = true }, "", Fresh, "until 300ms ago"},
			{
				"standby that deletes", func(s *Status) { s.Standby, s.Source = true, &SourceStatus{Name: "shop"} }, "", Fresh,
				"until 300ms ago is finished",
			},
			{"kafka away", func(s *Status) {
				s.kafka, s.Keys, s.FreshAsOf = errors.New("kafka: refused"), 7, now.Add(-27*time.Second)
			}, "", Behind, "kafka: refused; trying again forever, nothing is lost"},
			{"kafka away at the start", func(s *Status) {
				s.kafka, s.joining, s.FreshAsOf = errors.New("kafka: refused"), true,
					time.Time{}
			}, "", Starting, "kafka: refused; trying again forever"},
			{"kafka away, and the source let go of", func(s *Status) {
				s.kafka, s.Keys, s.Source = errors.New("kafka: refused"), 7, &SourceStatus{Address: "db:3306"}
			}, "", Behind, "kafka: refused; trying again forever"},
			{"one broker away", func(s *Status) { s.kafka = errors.New("kafka: refused") }, "", Fresh, "until 300ms ago"},
			{"one broker away, standby", func(s *Status) {
				s.kafka, s.Standby, s.Redis, s.FreshAsOf = errors.New("kafka: refused"), true, nil, time.Time{}
			}, "", Standby, "another reader"},
			{"only reads", func(s *Status) { s.Redis = nil }, "", Fresh, "until 300ms ago is in the event log"},
			{"only deletes", func(s *Status) { s.Source = nil }, "", Fresh, "until 300ms ago is finished"},
			{
				"given up", func(s *Status) { s.Parked, s.DeadLetters = 2, 3 }, "", Doubtful,
				"3 keys were given up and may be stale: see `freshet dlq list`",
			},
			{
				"deaf", func(s *Status) { s.deaf = now.Add(-2 * time.Minute) }, "", Doubtful,
				"it is not known what is in doubt since 2m0s ago: the topic of doubts cannot be read",
			},
			{
				"no new connection to redis", func(s *Status) {
					s.Redis = &RedisStatus{Address: "cache:6379", Up: true}
					s.unheard, s.unheardWhy = now.Add(-7*time.Second), errors.New("i/o timeout")
				}, "", Doubtful,
				"it is not known since 7s ago whether redis cache:6379 is still the same server: deletes are acknowledged on " +
					"connections of before, and no new one can be used (i/o timeout)",
			},
			{
				"in doubt", func(s *Status) { s.Doubts = []doubt.Doubt{{ID: "1f", Message: "TRUNCATE of shop.a"}} }, "", Doubtful,
				"keys may be stale: TRUNCATE of shop.a (`freshet doubts answer 1f` has them " +
					"forgotten; or clear them, then `freshet doubts dismiss 1f`)",
			},
			{
				"in doubt that is answered by itself", func(s *Status) {
					s.Doubts = []doubt.Doubt{{ID: "1f", Message: "TRUNCATE of shop.a", Cause: alarm.TruncatedTable}}
				}, "", Doubtful, "keys may be stale: TRUNCATE of shop.a (freshet answers it: it is about to begin)",
			},
			{
				"in several doubts", func(s *Status) {
					s.DeadLetters, s.Doubts = 1, []doubt.Doubt{{ID: "1f", Message: "TRUNCATE of shop.a"}, {ID: "2f"}}
				}, "", Doubtful,
				"keys may be stale for 2 reasons, see `freshet doubts list`; the oldest: TRUNCATE of shop.a",
			},
			{"stopped", func(s *Status) {
				s.FreshAsOf, s.Doubts = time.Time{}, []doubt.Doubt{{}}
				s.addPartitions([]eventlog.PartitionState{
					{Partition: 5, Stopped: errors.New("other")},
					{Partition: 2, Stopped: errors.New("records are lost")},
				})
			}, "", Behind, "partition 2, 5 of the topic is stopped, so changes of its keys are not acted upon (the others go " +
				"on): records are lost"},
			{
				"the store is unreadable", func(s *Status) { s.unreadable = errors.New("disk failure") }, "", Behind,
				"the store cannot be read: disk failure",
			},
			{
				"dead letters not counted yet", func(s *Status) { s.uncounted = true }, "", Starting,
				"reading from Kafka which keys were given up",
			},
			{
				"in doubt, and behind", func(s *Status) { s.FreshAsOf, s.Doubts = now.Add(-27*time.Second), []doubt.Doubt{{}} }, "",
				Behind, "catching up",
			},
		} {
			s := well
			x.change(&s)
			s.waiting = x.waiting
			state, sentence := s.judge()
			if state != x.state || !strings.Contains(sentence, x.sentence) {
				t.Errorf("%s: %s: %s", x.name, state, sentence)
			}
		}
	})
}

// An invalidator need not have mappings: how long final deletes take is known by what it fetches.
func TestAnInvalidatorWithoutMappingsIsNotBehindBeforeFinalDeletesAreDue(t *testing.T) {
	redis, err := invalidator.NewSingle(invalidator.SingleOptions{Address: "127.0.0.1:1"})
	must(t, err)
	defer func() { must(t, redis.Close()) }()
	engine, err := invalidator.New(invalidator.Deps{Redis: redis, Store: struct{ retry.Store }{}},
		invalidator.Options{ShortestD: 40 * time.Second})
	must(t, err)
	c := &config.Config{
		Source:      config.Source{Heartbeat: time.Second},
		Invalidator: config.Invalidator{SecondDelete: 2 * time.Second},
	}
	if got := behindAfter(c, engine.LongestD()); got != 86*time.Second {
		t.Errorf("behind after %s", got)
	}
}

func TestAStatusIsPrintedForAHuman(t *testing.T) {
	s := Status{
		State: Fresh, Sentence: "all is well", FreshAsOf: time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local),
		Source:     &SourceStatus{Name: "default", Address: "db:3306", Flavor: event.MariaDB, Position: "binlog.000112:4096"},
		Checkpoint: &CheckpointStatus{Position: "0-2-57", Epoch: 3, Term: 12},
		Redis:      &RedisStatus{Sentence: "redis cache:6379 answers"},
		Rows:       17, Keys: 34, InFlight: 1, Pending: 2, OldestUnfinished: 1.5, RateLimited: 1, RebuildQueue: 6, Parked: 3,
		DeadLetters: 4,
		LatencyP50:  0.0012, LatencyP99: 0.05,
		Alarms: []alarm.Record{{
			Kind: alarm.DeadLetter, Message: "a key was given up", Count: 5,
			Last: time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local),
		}},
	}
	var b strings.Builder
	must(t, s.Print(&b))
	zone := s.FreshAsOf.Format("Z07:00")
	want := `state            fresh: all is well
fresh as of      2026-01-31T12:00:00` + zone + `
source           default, db:3306, mariadb, binlog.000112:4096
checkpoint       0-2-57 (epoch 3, term 12)
redis            redis cache:6379 answers
since the start  17 row changes
keys done        34 since the start, as often as Redis acknowledged an action on one
latency          p50 1.2ms, p99 50ms (last minute)
in flight        1 keys
final deletes    2 keys waiting; the oldest unfinished batch was read 1.5s ago
waiting          1 keys wait for the rate_limit of their mapping, 6 keys wait for a query to begin
in trouble       3 parked, 4 dead letters
alarm            dead_letter raised, 5 times, last 2026-01-31T12:00:00` + zone + `: a key was given up
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestAStatusPrintsTheNodesOfACluster(t *testing.T) {
	s := Status{State: Fresh, Redis: &RedisStatus{Sentence: "all 2 nodes answer", Nodes: []invalidator.NodeStatus{
		{Sentence: "cache-1:6379 answers", Slots: 8000}, {Sentence: "cache-2:6379 is away", Slots: 8384, Moving: 2},
	}}}
	var b strings.Builder
	must(t, s.Print(&b))
	for _, want := range []string{
		"node           cache-1:6379 answers (8000 slots)\n",
		"node           cache-2:6379 is away (8384 slots, of which 2 are being moved)\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestAStatusOfAProcessThatOnlyDeletesTellsOfItsPartitions(t *testing.T) {
	s := Status{
		State: Fresh, Sentence: "all is well", Redis: &RedisStatus{Sentence: "redis answers"}, Keys: 5,
		Partitions: []PartitionStatus{{ID: 3, Lag: 0.25, InFlight: 1, Pending: 2}, {ID: 7, Idle: true}},
	}
	var b strings.Builder
	if err := s.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"partition 3    250ms behind, 1 keys in flight, 2 waiting", "partition 7    0s behind"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "source") {
		t.Errorf("it tells of a source:\n%s", b.String())
	}
}
