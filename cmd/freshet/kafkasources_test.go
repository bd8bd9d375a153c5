package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/proof/testbed"
)

// sources are two on one topic, each with a reader, and a group of one invalidator.
type sources struct {
	*site     // the invalidator
	shop, crm *site
}

// numbered is how many rows there are of each source.
const numbered = 40

// newSources prepares them. Both are databases of one server, which is read under two names.
func newSources(t *testing.T, kafka *testbed.KafkaCluster) *sources {
	t.Helper()
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	s.source.Exec(t, "CREATE DATABASE crm", "CREATE TABLE crm.user (id INT PRIMARY KEY, price INT NOT NULL)",
		fmt.Sprintf("INSERT INTO shop.product SELECT seq, 1 FROM shop.seq_1_to_%d", numbered),
		"INSERT INTO crm.user SELECT * FROM shop.product")
	s.source.MayRead(t, "crm.*")
	s.extra = passGaps
	all := &sources{site: s.part("invalidator"), shop: s.part("reader"), crm: s.part("reader")}
	all.crm.env = append(all.crm.env, "FRESHET_SOURCE_NAME=crm")
	all.crm.mappings = `[{table: crm.user, keys: ["user:{id}"]}]`
	return all
}

// fill caches all rows, and a key of nobody.
func (s *sources) fill() {
	s.t.Helper()
	s.cache("other:1")
	for id := 1; id <= numbered; id++ {
		s.cache(fmt.Sprintf("product:%d", id))
		s.cache(fmt.Sprintf("user:%d", id))
	}
}

// left reports which keys are cached, though they should not be, or the other way round.
func (s *sources) left(stays func(key string, id int) bool) {
	s.t.Helper()
	for id := 1; id <= numbered; id++ {
		for _, key := range []string{fmt.Sprintf("product:%d", id), fmt.Sprintf("user:%d", id)} {
			if is, want := s.cached(key), stays(key, id); is != want {
				s.t.Errorf("%s: cached %t, want %t", key, is, want)
			}
		}
	}
	s.kept("other:1")
}

// Nobody knows of which source the records were that are lost.
func TestKeysOfAllSourcesAreForgottenThatLostRecordsCanHaveBeenAbout(t *testing.T) {
	kafka := testbed.SharedKafka(t)
	s := newSources(t, kafka)
	changes := func(below int) {
		s.source.Exec(t, fmt.Sprintf("UPDATE shop.product SET price = price + 1 WHERE id <= %d", below),
			fmt.Sprintf("UPDATE crm.user SET price = price + 1 WHERE id <= %d", below))
		s.shop.caughtUp()
		s.crm.caughtUp()
	}
	changes(0) // a first start, which reads from now on
	changes(numbered)
	s.caughtUp()
	changes(20)
	kafka.DeleteRecords(t, s.topic, 0, -1)
	s.fill()
	for _, p := range []*site{s.shop, s.crm} {
		p.start("reader")
	}
	deleting := s.start("invalidator")
	deleting.WaitOutput(t, patience, " of partitions 0 were forgotten")
	undoubted(s.shop, s.crm, s.site)
	s.left(func(key string, id int) bool { return id > 20 && producer.Partition(key, topicPartitions) != 0 })
}

// A group reads the rows of the source that its file has. Of the other one it says so, and forgets nothing of it.
func TestRowsAreReadOfTheSourceThatTheGroupHas(t *testing.T) {
	s := newSources(t, testbed.SharedKafka(t))
	s.readsRows = true
	s.crm.mappings = `[{table: crm.user, keys: ["user:{id}"], scope: rows}]`
	for _, p := range []*site{s.shop, s.crm, s.site} {
		p.start(p.role)
	}
	undoubted(s.shop, s.crm, s.site)
	s.fill()
	s.ask("invalidate", "--table", "shop.product", "--where", "id > 20", "--wait")
	s.left(func(key string, id int) bool { return id <= 20 || strings.HasPrefix(key, "user:") })
	s.refused(exitUsage, []string{"crm.user"}, "invalidate", "--table", "crm.user", "--where", "id > 20")
	s.refused(exitUsage, []string{"crm.user"}, "warm", "--table", "crm.user")

	// A doubt about each: of the one, Redis is looked through, and the rows of the other cannot be read.
	s.source.Exec(t, "TRUNCATE shop.product", "TRUNCATE crm.user")
	s.await("it says what is missing", func(st *app.Status) bool {
		return len(st.Doubts) == 1 && st.Doubts[0].Stuck && strings.Contains(st.Doubts[0].Answer, "crm")
	})
	s.left(func(key string, _ int) bool { return strings.HasPrefix(key, "user:") })
}

// What an operator asked for is in no topic of changes, and is answered again all the same. The rows are those that
// there are then.
func TestAroundKafkaRowsThatWereForgottenByHandAreForgottenAgain(t *testing.T) {
	o := newOlderGroup(t, testbed.MariaDB(t), func(s *site) {
		s.readsRows = true
		s.source.Exec(t, fmt.Sprintf("INSERT INTO shop.product SELECT seq, 1 FROM shop.seq_0_to_%d", changed+untouched-1))
	})
	before := o.stamp()
	o.redis.Do(t, "save")
	o.ask("invalidate", "--table", "shop.product", "--where", fmt.Sprintf("id < %d", changed), "--wait")
	if n := o.left(); n != untouched {
		t.Fatalf("%d keys are left, want %d", n, untouched)
	}
	testbed.Eventually(t, patience, "the stamp knows of the answer", func() bool { return o.stamp() != before })
	for range 2 {
		o.restart()
		o.back()
		o.redone()
		undoubted(o.reader, o.members[0], o.members[1])
	}
}
