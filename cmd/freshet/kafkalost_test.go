package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/proof/testbed"
)

// produce puts a record into a partition of the topic.
func (s *site) produce(k *testbed.KafkaCluster, partition int, value string) {
	s.t.Helper()
	s.produceTo(k, s.topic, partition, kafka.Record{Value: kafka.NewBytes([]byte(value))})
}

func (s *site) produceTo(k *testbed.KafkaCluster, topic string, partition int, r kafka.Record) {
	s.t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers()...), Transport: transport}
	res, err := client.Produce(s.t.Context(), &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(r),
	})
	testbed.Must(s.t, err)
	testbed.Must(s.t, res.Error)
}

// halted runs a part that must end because something is lost, and then says so again: a restart does not help.
func (s *site) halted(words []string, args ...string) {
	s.t.Helper()
	for range 2 {
		s.refused(exitGap, words, append([]string{s.role}, args...)...)
	}
}

// losing are the ways in which records of the first partition get lost, and what is said then.
func losing(t *testing.T, kafka *testbed.KafkaCluster) map[string]losingRecords {
	return map[string]losingRecords{
		"retention deleted them": {func(s *site) {
			kafka.DeleteRecords(t, s.topic, 0, -1)
		}, []string{"it has come to offset", "retention deleted what lay between"}},
		"the group's offsets were deleted": {func(s *site) {
			kafka.Tool(t, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--delete", "--group", s.group)
			kafka.DeleteRecords(t, s.topic, 0, 1)
		}, []string{"it has no committed offset, and the log begins at 1"}},
		"the topic was created again": {func(s *site) {
			kafka.DeleteTopic(t, s.topic)
			kafka.Topic(t, s.topic, topicPartitions)
			// The brokers have forgotten the group's offsets too. What comes next shows that something came before.
			s.writeMany(1, 30)
			r := s.part("reader").start("reader", "--until-caught-up")
			if code := r.Wait(t, patience); code != exitDone ||
				!strings.Contains(r.Stderr(), "is empty, although source default has written to it before") {
				t.Errorf("reader: exit code %d", code)
			}
		}, []string{"the log never held anything of it before that (the topic was created again)"}},
	}
}

type losingRecords struct {
	lose  func(*site)
	words []string
}

// Whatever way records get lost, the backlog cannot be finished: that ends with exit code 3 and the reason, and goes on
// only when it is told to.
func TestRecordsThatKafkaLostAreNeverSkippedSilently(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	place := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	for name, c := range testbed.SomeOf(t, losing(t, kafka)) {
		t.Run(name, func(t *testing.T) {
			s := place.around(t, kafka)
			reader, invalidator := s.loseRecords(&c)
			words := append(c.words, "records of "+s.topic+"/", "lost to group "+s.group, "clear the cache", "--skip-lost")
			invalidator.halted(words, "--until-caught-up")

			r := invalidator.start("invalidator", "--until-caught-up", "--skip-lost")
			if code := r.Wait(t, patience); code != exitDone ||
				!strings.Contains(r.Stderr(), "passed over, as --skip-lost or on_gap says") {
				t.Fatalf("with --skip-lost: exit code %d", code)
			}
			testbed.Must(t, s.redis.Client().FlushAll(t.Context()).Err())
			s.writeMany(1, 30)
			reader.caughtUp()
			invalidator.caughtUp()
			s.nothingCached()
		})
	}
}

// loseRecords has records lost that the reader has written, and the invalidator has not read.
func (s *site) loseRecords(c *losingRecords) (reader, invalidator *site) {
	reader, invalidator = s.part("reader"), s.part("invalidator")
	reader.caughtUp()
	s.writeMany(1, 30)
	reader.caughtUp()
	invalidator.caughtUp()
	s.writeMany(1, 30)
	reader.caughtUp()
	c.lose(s)
	return reader, invalidator
}

// With on_gap: invalidate a loss is passed over, and what its keys were is forgotten, in the group's Redis alone.
func TestWhatRecordsThatKafkaLostWereAboutIsForgotten(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	place := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	for name, c := range testbed.SomeOf(t, losing(t, kafka)) {
		t.Run(name, func(t *testing.T) {
			s := place.around(t, kafka)
			s.extra = passGaps
			reader, invalidator := s.loseRecords(&c)
			s.cache("other:1")
			reading, deleting := reader.start("reader"), invalidator.start("invalidator")
			deleting.WaitOutput(t, patience, "passed over, as --skip-lost or on_gap says")
			deleting.WaitOutput(t, patience, "a doubt is answered")
			undoubted(reader, invalidator)
			for id := 1; id <= 30; id++ {
				s.gone(fmt.Sprintf("product:%d", id))
			}
			s.kept("other:1")
			for i, p := range invalidator.status().Partitions {
				if p.Stopped != "" {
					t.Errorf("partition %d is stopped: %s", i, p.Stopped)
				}
			}
			s.writeMany(1, 30)
			testbed.Eventually(t, patience, "all is deleted", func() bool { return s.size() == 1 })
			for _, r := range []*testbed.Running{reading, deleting} {
				if code := r.Stop(t, patience); code != exitDone {
					t.Errorf("exit code %d", code)
				}
			}
		})
	}
}

// Of what retention deletes, the partition is known, and with it the keys: those of other partitions stay cached, also
// after partitions were added, when keys have moved. Where it is not known over how many partitions they were spread,
// all are forgotten.
func TestOnlyKeysOfThePartitionThatLostRecordsAreForgotten(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	place := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"))
	place.extra, place.redisMore = passGaps, `, key_prefix: "app:"`
	place.mappings = `[{table: shop.product, keys: ["product:{id}"]},
  {table: shop.product, hash: {key: "prices:{id}", field: "now", value: price}},
  {table: shop.product, set: {key: "tags:{id}", member: "{price}"}}]`
	for name, c := range map[string]struct {
		add    bool // partitions
		unkept bool // over how many keys are spread
		says   string
	}{
		"as ever":              {says: " of partitions 0 were forgotten"},
		"partitions are added": {add: true, says: " of partitions 0 were forgotten"},
		"it is not kept":       {unkept: true, says: "of any partition since it is not known over how many they were spread"},
	} {
		t.Run(name, func(t *testing.T) {
			s := place.around(t, kafka)
			reader, invalidator := s.part("reader"), s.part("invalidator")
			reader.caughtUp() // a first start, which reads from now on
			s.writeMany(1, 40)
			reader.caughtUp()
			invalidator.caughtUp()
			testbed.Must(t, s.redis.Client().FlushAll(t.Context()).Err())
			s.source.Exec(t, "UPDATE shop.product SET price = price + 1 WHERE id <= 20")
			reader.caughtUp()
			spread := []int{topicPartitions}
			if c.add {
				spread = append(spread, 7)
				kafka.AddPartitions(t, s.topic, 7)
				s.source.Exec(t, "UPDATE shop.product SET price = price + 1 WHERE id <= 20")
				reader.caughtUp()
			}
			kafka.DeleteRecords(t, s.topic, 0, -1)
			if c.unkept {
				s.produceTo(kafka, s.topic+".doubts", 0, kafkaTombstone("fact/partitions/default/"+fmt.Sprint(topicPartitions)))
			}
			for id := 1; id <= 40; id++ {
				s.cache(fmt.Sprintf("app:product:%d", id))
				testbed.Must(t, s.redis.Client().HSet(t.Context(), fmt.Sprintf("app:prices:%d", id), "now", "old").Err())
				testbed.Must(t, s.redis.Client().SAdd(t.Context(), fmt.Sprintf("app:tags:%d", id), "1").Err())
			}
			reading, deleting := reader.start("reader"), invalidator.start("invalidator")
			deleting.WaitOutput(t, patience, c.says)
			undoubted(reader, invalidator)
			lost := func(key string) bool {
				return slices.ContainsFunc(spread, func(n int) bool { return producer.Partition(key, n) == 0 })
			}
			stay := 0
			for id := 1; id <= 40; id++ {
				for _, kind := range []string{"product", "prices", "tags"} {
					key := fmt.Sprintf("%s:%d", kind, id)
					if kind == "tags" && id <= 20 { // which change, and stay
						continue
					}
					stays := id > 20 && !c.unkept && !lost(key)
					is := s.cached("app:" + key)
					if kind == "prices" && id <= 20 { // these change: they may have been written again
						is = s.redis.Client().HGet(t.Context(), "app:"+key, "now").Val() == "old"
					}
					if is != stays {
						t.Errorf("%s: is cached: %t", key, is)
					}
					if stays {
						stay++
					}
				}
			}
			if !c.unkept && stay == 0 {
				t.Error("nothing had to stay, so nothing is shown")
			}
			for _, r := range []*testbed.Running{reading, deleting} {
				if code := r.Stop(t, patience); code != exitDone {
					t.Errorf("exit code %d", code)
				}
			}
		})
	}
}

// kafkaTombstone removes what a compacted topic has under a key.
func kafkaTombstone(key string) kafka.Record { return kafka.Record{Key: kafka.NewBytes([]byte(key))} }

// A partition of which records are lost is stopped, in any process; the others go on, and all says so until somebody
// has seen to it.
func TestAPartitionThatLostRecordsStopsAloneAndSaysSo(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	reader, invalidator, other := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	reader.caughtUp()
	s.writeMany(1, 30)
	reader.caughtUp()
	invalidator.caughtUp()
	held := s.heldUp(1, 30)
	reader.caughtUp()
	kafka.DeleteRecords(t, s.topic, 0, -1)

	stays := invalidator.start("invalidator")
	loud := func(st *app.Status) bool {
		return st.State == app.Behind && strings.Contains(st.Sentence, "partition 0 of the topic is stopped") &&
			strings.Contains(st.Sentence, "clear the cache") && strings.Contains(st.Sentence, "--skip-lost") &&
			len(st.Partitions) == topicPartitions &&
			strings.Contains(st.Partitions[0].Stopped, "retention deleted what lay between") &&
			st.Partitions[1].Stopped == "" &&
			len(st.Doubts) == 1 && st.Doubts[0].Cause == alarm.RecordsLost && st.Doubts[0].Group == s.group &&
			st.Doubts[0].Subject == s.topic+"/0"
	}
	invalidator.await("it says that the partition is stopped", loud)
	reading := reader.start("reader")
	held += s.heldUp(31, 60)
	testbed.Eventually(t, patience, "the other partitions' keys are deleted", func() bool { return s.size() == held })
	if _, metrics := invalidator.get("/metrics"); !strings.Contains(metrics, "freshet_kafka_stopped_partitions 1\n") {
		t.Error("no metric says that a partition is stopped")
	}
	// A process that is to finish what there is cannot, whichever of the two has the partition, and leaves the other
	// alone.
	other.halted([]string{
		"records of " + s.topic + "/0 are lost to group " + s.group,
		"retention deleted what lay between",
	}, "--until-caught-up")
	held += s.heldUp(61, 90)
	testbed.Eventually(t, patience, "the other partitions' keys are deleted", func() bool { return s.size() == held })
	invalidator.await("it still says so", loud)
	for _, r := range []*testbed.Running{reading, stays} {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	}

	testbed.Must(t, s.redis.Client().FlushAll(t.Context()).Err())
	s.writeMany(61, 90)
	reader.caughtUp()
	goesOn := invalidator.start("invalidator", "--skip-lost")
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
	invalidator.await("it is only in doubt now", func(st *app.Status) bool {
		return st.State == app.Doubtful && len(st.Doubts) == 1 && st.Partitions[0].Stopped == ""
	})
	invalidator.ask("doubts", "dismiss", invalidator.status().Doubts[0].ID)
	invalidator.await("it says no more", func(st *app.Status) bool { return len(st.Doubts) == 0 })
	if code := goesOn.Stop(t, patience); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// A topic that is deleted and made again under the running processes ends them with exit code 3.
func TestATopicThatIsMadeAnewUnderRunningPartsStopsThem(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	reader, invalidator := s.part("reader"), s.part("invalidator")
	read, invalidate := reader.start("reader"), invalidator.start("invalidator")
	invalidator.awaitFresh()
	s.writeMany(1, 30)
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
	kafka.DeleteTopic(t, s.topic)
	kafka.Topic(t, s.topic, topicPartitions)
	ends(t, invalidate, exitGap, "and the log ends at 0 (the topic was created again")
	s.writeMany(1, 30)
	ends(t, read, exitGap, "the topic was deleted and made again")
	// What was appended and not acknowledged is read again, so nothing is lost with what the invalidators had seen.
	if rows, _ := reader.caughtUp(); rows != 30 {
		t.Errorf("the reader went on behind what the topic lost: rows=%d", rows)
	}
	invalidator.ask("invalidator", "--until-caught-up", "--skip-lost")
	s.nothingCached()
}

// With on_gap: invalidate both go on, in the same processes, and what the topic held is forgotten: also what nothing
// shows the loss of.
func TestATopicThatIsMadeAgainUnderRunningPartsIsPassedOverWhereGapsAre(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	s.extra = passGaps
	reader, invalidator := s.part("reader"), s.part("invalidator")
	read, invalidate := reader.start("reader"), invalidator.start("invalidator")
	invalidator.awaitFresh()
	s.writeMany(1, 30)
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
	for id := 31; id <= 60; id++ { // of rows that nobody changes
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	kafka.DeleteTopic(t, s.topic)
	kafka.Topic(t, s.topic, topicPartitions)
	s.writeMany(1, 30)
	read.WaitOutput(t, patience, "The source is read on from the checkpoint, as on_gap says")
	testbed.Eventually(t, patience, "all is deleted", func() bool { return s.size() == 1 })
	undoubted(reader, invalidator)
	s.kept("other:1")
	s.writeMany(1, 60)
	testbed.Eventually(t, patience, "all is deleted", func() bool { return s.size() == 1 })
	for _, r := range []*testbed.Running{read, invalidate} {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	}
}

func TestAnEmptiedCheckpointTopicIsNoFirstStart(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	reader, invalidator := s.part("reader"), s.part("invalidator")
	reader.caughtUp()
	at := places(t, s.source)["gtid"]
	s.writeMany(1, 30)
	reader.caughtUp()
	kafka.DeleteTopic(t, s.topic+".checkpoint.default")
	s.writeMany(31, 60)
	reader.halted([]string{"position lost: source default: topic " + s.topic + ".checkpoint.default", "position set"})
	reader.refused(exitGap, []string{"position lost"}, "position", "show")
	set := reader.start("position", "set", at)
	if code := set.Wait(t, patience); code != exitDone || !strings.HasPrefix(set.Stdout(), "position was none, is now ") {
		t.Fatalf("exit code %d, %s", code, set.Stdout())
	}
	reader.caughtUp()
	invalidator.caughtUp()
	s.nothingCached()
}

// A record that nobody can read is kept whole and holds up nobody; one of a newer format holds up its partition alone.
func TestRecordsThatCannotBeReadStopOnlyThemselves(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	reader, invalidator := s.part("reader"), s.part("invalidator")
	read, invalidate := reader.start("reader"), invalidator.start("invalidator")
	invalidator.awaitFresh()
	s.produce(kafka, 1, "no document at all")
	s.writeMany(1, 30)
	testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
	invalidator.await("it says that a record is among the dead letters", func(st *app.Status) bool {
		return st.DeadLetters == 1 && len(st.Alarms) == 1 &&
			strings.Contains(st.Alarms[0].Message, s.topic+"/1 cannot be read; it was put whole among the dead letters")
	})
	if out := invalidator.ask("dlq", "list"); !strings.Contains(out, "record "+s.topic+
		"/1@0 cannot be read: record: malformed at byte 0") {
		t.Errorf("dlq list: %s", out)
	}
	invalidator.refused(exitFailed, []string{"1 dead letters cannot be read, and stay", "malformed at byte 0"}, "dlq",
		"replay", "--all")

	s.produce(kafka, 0, fmt.Sprintf(`{"format": %d, "source": "default"}`, record.Format+1))
	invalidate.WaitOutput(t, patience,
		fmt.Sprintf("%s/0 at offset 1: record: written by a newer freshet: format %d", s.topic, record.Format+1))
	held := s.heldUp(31, 60) // others, whose final deletes are not still to come
	testbed.Eventually(t, patience, "the other partitions' keys are deleted", func() bool { return s.size() == held })
	invalidator.await("it is behind, and says that it is", func(st *app.Status) bool { return st.State == app.Behind })
	if s.size() != held {
		t.Errorf("%d keys are cached, %d belong to the partition that waits", s.size(), held)
	}
	for _, r := range []*testbed.Running{read, invalidate} {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	}
	if out := invalidator.ask("dlq", "purge", "--all"); out != "purged 1 dead letters\n" {
		t.Errorf("dlq purge: %s", out)
	}
}

// heldUp writes products, and returns how many of their keys are in partition 0.
func (s *site) heldUp(from, to int) (held int64) {
	s.t.Helper()
	for id := from; id <= to; id++ {
		if producer.Partition(fmt.Sprintf("product:%d", id), topicPartitions) == 0 {
			held++
		}
	}
	s.writeMany(from, to)
	return held
}

// What check calls an error is one at a start, too: these would lead to several leaders, and to dead letters that
// vanish.
func TestTopicsThatAreNotAsTheyMustBeAreRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	reader, invalidator := s.part("reader"), s.part("invalidator")
	checkpoint, letters := s.topic+".checkpoint.default", s.topic+"."+s.group+".dlq"
	kafka.Topic(t, checkpoint, 3, "cleanup.policy=compact")
	kafka.Topic(t, letters, 1, "cleanup.policy=delete")
	several := []string{
		"topic " + checkpoint + " has 3 partitions; its records keep their order only in one",
		"--partitions 1",
	}
	reader.refused(exitFailed, several, "reader")
	reader.refused(exitFailed, several, "position", "set", "now")
	invalidator.refused(exitFailed, []string{"topic " + letters + " has cleanup.policy delete", "cleanup.policy=compact"},
		"invalidator")
	for _, topic := range []string{checkpoint, letters} {
		kafka.DeleteTopic(t, topic)
	}
	reader.caughtUp()
	s.writeMany(1, 30)
	reader.caughtUp()
	invalidator.caughtUp()
	s.nothingCached()
}

// The invalidators go on all the time, and remember the earlier source of the name.
func TestASourceThatWasRemovedComesBackUnderItsName(t *testing.T) {
	t.Parallel()
	cluster := testbed.SharedKafka(t)
	for name, compacted := range map[string]bool{"its tombstone is there": false, "nothing of it is there": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, cluster)
			reader, invalidator := s.part("reader"), s.part("invalidator")
			read, invalidate := reader.start("reader"), invalidator.start("invalidator")
			invalidator.awaitFresh()
			s.writeMany(1, 30)
			testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
			if code := read.Stop(t, patience); code != exitDone {
				t.Fatalf("reader: exit code %d", code)
			}
			for range 4 { // its last mark, and terms enough for those of the next life, were they counted from 1
				reader.caughtUp()
			}
			s.produceTo(cluster, s.topic+".marks", 0, kafka.Record{Key: kafka.NewBytes([]byte("default"))})
			cluster.DeleteTopic(t, s.topic+".checkpoint.default")
			if compacted {
				cluster.DeleteTopic(t, s.topic+".marks")
			}
			read = reader.start("reader")
			reader.awaitFresh()
			s.writeMany(31, 60)
			testbed.Eventually(t, patience, "all is deleted", s.isEmpty)
			invalidator.await("all final deletes are done", func(st *app.Status) bool {
				return st.State == app.Fresh && st.InFlight+st.Pending == 0
			})
			if code := read.Stop(t, patience); code != exitDone {
				t.Fatalf("reader: exit code %d", code)
			}
			if code := invalidate.Stop(t, patience); code != exitDone {
				t.Fatalf("invalidator: exit code %d", code)
			}
			s.nothingCached()
		})
	}
}

// With a topic go the commits of its groups, so that nothing of what it held seems to be left to do.
func TestATopicThatIsMadeAnewWithNothingInItIsNotCaughtUpWith(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	reader, invalidator := s.part("reader"), s.part("invalidator")
	reader.caughtUp()
	s.writeMany(1, 30)
	reader.caughtUp() // and nobody deletes
	kafka.DeleteTopic(t, s.topic)
	r := invalidator.start("invalidator", "--until-caught-up")
	if code := r.Wait(t, 4*patience); code != exitGap { // it takes its time to be certain
		t.Fatalf("exit code %d", code)
	}
	ends(t, r, exitGap, "source default has written to it up to offset", "and the log ends at 0", "--skip-lost")
	if out := invalidator.ask("doubts", "list"); !strings.Contains(out, "records_lost") {
		t.Errorf("doubts list: %s", out)
	}
}

// Two that work on two Redis under one group, as with the default in both files, would each get a part of the deletes.
func TestTwoRedisUnderOneGroupAreNotFresh(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, testbed.SharedKafka(t))
	reader, a, b := s.part("reader"), s.part("invalidator"), s.part("invalidator")
	b.redis = testbed.Redis(t)
	reader.start("reader")
	a.start("invalidator")
	a.awaitFresh()
	b.start("invalidator")
	b.await("it has its share", func(st *app.Status) bool { return len(st.Partitions) > 0 })
	for _, p := range []*site{a, b} {
		p.await("it is in doubt", func(st *app.Status) bool {
			return st.State == app.Doubtful &&
				strings.Contains(st.Sentence, "another invalidator of group "+s.group+" works on another Redis")
		})
	}
}
