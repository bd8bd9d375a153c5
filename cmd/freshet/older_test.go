package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/proof/testbed"
)

// older is a site whose Redis comes back with older data.
type older struct {
	*site
	freshet *testbed.Running
}

// changed and untouched are the products whose keys are in the older data: those that are changed after it, and those
// that are not.
const (
	changed   = 200
	untouched = 200
)

func newOlder(t *testing.T, source *testbed.Server, redis ...string) *older {
	s := newSite(t, source)
	if len(redis) > 0 {
		s.redis = testbed.Redis(t, redis...)
	}
	o := &older{site: s}
	o.freshet = s.run()
	for id := range changed + untouched {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	s.stamped()
	return o
}

// stamped waits until Redis' stamp says that all is finished.
func (s *site) stamped() {
	s.t.Helper()
	if s.kafka != "" {
		s.stampedAroundKafka()
		return
	}
	testbed.Eventually(s.t, patience, "redis is stamped", func() bool {
		var at checkpoint.PositionJSON
		return json.Unmarshal([]byte(s.stamp()), &at) == nil && at.GTIDs == s.source.GTIDs(s.t)
	})
}

// stamp returns what Redis holds for a stamp; "" if it holds none.
func (s *site) stamp() string {
	s.t.Helper()
	c := s.redis.Client()
	keys, err := c.Keys(s.t.Context(), "freshet:stamp:*").Result()
	testbed.Must(s.t, err)
	if len(keys) == 0 {
		return ""
	}
	return c.Get(s.t.Context(), keys[0]).Val()
}

// change changes the products that are changed, and waits until their keys are finished.
func (o *older) change() {
	o.t.Helper()
	for id := range changed {
		o.write(id)
	}
	for id := range changed {
		o.gone(fmt.Sprintf("product:%d", id))
	}
	o.stamped()
}

// back checks that Redis is back with the older data.
func (o *older) back() {
	o.t.Helper()
	if !o.cached("other:1") {
		o.t.Fatal("redis came back with nothing")
	}
}

// redone waits until the changes were done again, and nothing else was forgotten.
func (o *older) redone() {
	o.t.Helper()
	for id := range changed {
		o.gone(fmt.Sprintf("product:%d", id))
	}
	o.freshAgain()
	for id := changed; id < changed+untouched; id++ {
		o.kept(fmt.Sprintf("product:%d", id))
	}
	o.kept("other:1")
}

// forgotten waits until all keys that mappings can have made were forgotten, and no others.
func (o *older) forgotten() {
	o.t.Helper()
	for id := range changed + untouched {
		o.gone(fmt.Sprintf("product:%d", id))
	}
	o.freshAgain()
	o.kept("other:1")
}

func (o *older) restart() {
	o.t.Helper()
	testbed.Must(o.t, o.redis.Kill())
	testbed.Must(o.t, o.redis.Start(o.t.Context()))
}

func TestChangesAreDoneAgainWhenRedisComesBackWithAnOldSnapshot(t *testing.T) {
	eitherLog(t,
		changesAreDoneAgainWhenRedisComesBackWithAnOldSnapshot,
		changesAreDoneAgainWhenRedisComesBackWithAnOldSnapshotAroundKafka)
}

func changesAreDoneAgainWhenRedisComesBackWithAnOldSnapshot(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		o := newOlder(t, source)
		o.redis.Do(t, "save")
		o.change()
		o.restart()
		o.back()
		o.redone()
	})
}

func TestASecondRestartBeginsTheRedoAgain(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	o.redis.Do(t, "save")
	o.change()
	o.restart()
	o.redone()
	o.restart() // from the same snapshot
	o.back()
	o.redone()
}

// What a redo has not done yet, a snapshot from its middle lacks.
func TestASnapshotFromTheMiddleOfARedoSaysWhereToBegin(t *testing.T) {
	eitherLog(t, aSnapshotFromTheMiddleOfARedoSaysWhereToBegin, aSnapshotFromTheMiddleOfARedoSaysWhereToBeginAroundKafka)
}

func aSnapshotFromTheMiddleOfARedoSaysWhereToBegin(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	o.redis.Do(t, "save")
	o.change()
	o.freshet.Kill9()
	o.extra = "scope_rate: 20\n"
	o.restart()
	o.start("run")
	testbed.Eventually(t, patience, "keys are forgotten", func() bool { return len(o.allCached()) < changed+untouched-20 })
	o.redis.Do(t, "save")
	o.redone()
	o.restart()
	o.back()
	o.redone()
}

func TestChangesAreDoneAgainWhenRedisWentBackWhileFreshetWasDown(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MariaDB(t))
	o.redis.Do(t, "save")
	o.change()
	o.freshet.Kill9()
	o.restart()
	o.back()
	o.start("run")
	o.redone()
}

// Redis' file of commands lacks its end after the loss of a machine.
func TestChangesAreDoneAgainWhenRedisLostTheEndOfItsLog(t *testing.T) {
	eitherLog(t, changesAreDoneAgainWhenRedisLostTheEndOfItsLog, changesAreDoneAgainWhenRedisLostTheEndOfItsLogAroundKafka)
}

func changesAreDoneAgainWhenRedisLostTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t), "--appendonly", "yes", "--appendfsync", "no")
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

// log returns the name of the file that Redis appends commands to.
func (o *older) log() string {
	o.t.Helper()
	files, err := filepath.Glob(filepath.Join(o.redis.Dir, "appendonlydir", "*.incr.aof"))
	testbed.Must(o.t, err)
	if len(files) != 1 {
		o.t.Fatalf("files of commands: %v", files)
	}
	return files[0]
}

func TestAKilledRedoGoesOn(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	o.redis.Do(t, "save")
	o.change()
	testbed.Must(t, o.redis.Kill())
	o.freshet.Kill9()
	testbed.Must(t, o.redis.Start(t.Context()))
	o.extra = "scope_rate: 50\n"
	left := func() (n int) {
		for id := range changed {
			if o.cached(fmt.Sprintf("product:%d", id)) {
				n++
			}
		}
		return n
	}
	for before := left(); before > 0; before = left() {
		r := o.start("run")
		testbed.Eventually(t, patience, "keys are forgotten", func() bool { return left() < before })
		r.Kill9()
	}
	o.start("run")
	o.redone()
}

// TRUNCATE names no rows: it is a doubt of its own, also when it is read again.
func TestATruncateIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	o.redis.Do(t, "save")
	o.source.Exec(t, "TRUNCATE shop.product")
	o.freshAgain()
	o.stamped()
	o.restart()
	o.back()
	o.forgotten()
}

func TestAllKeysAreForgottenWhenTheBinlogHasGone(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	o.redis.Do(t, "save")
	o.change()
	o.source.Exec(t, "FLUSH BINARY LOGS")
	o.write(0)
	o.stamped()
	file, _ := o.source.BinlogPosition(t)
	o.source.Exec(t, "PURGE BINARY LOGS TO '"+file+"'")
	o.restart()
	o.back()
	o.forgotten()
}

// A Redis that never had a stamp says nothing about how old its data is.
func TestAllKeysAreForgottenWhenNobodyKnowsHowOldTheDataIs(t *testing.T) {
	t.Parallel()
	o := newOlder(t, testbed.MySQL(t))
	for _, k := range o.redis.Client().Keys(t.Context(), "freshet:stamp:*").Val() {
		o.redis.Do(t, "rename", k, "stamp")
		o.redis.Do(t, "save")
	}
	o.change()
	o.restart()
	o.back()
	o.forgotten()
}

func TestTheOperatorSaysHowFarToGoBack(t *testing.T) {
	eitherLog(t, theOperatorSaysHowFarToGoBack, theOperatorSaysHowFarToGoBackAroundKafka)
}

func theOperatorSaysHowFarToGoBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	s.redisMore = ", failover_window: 1h"
	o := &older{site: s}
	// A binlog that goes back further than that.
	s.source.Exec(t, fmt.Sprintf("SET timestamp = %d", time.Now().Add(-2*time.Hour).Unix()), "FLUSH BINARY LOGS",
		"SET timestamp = DEFAULT")
	file, _ := o.source.BinlogPosition(t)
	o.source.Exec(t, "PURGE BINARY LOGS TO '"+file+"'")
	o.freshet = s.run()
	for id := range changed {
		o.write(id)
	}
	s.stamped()
	for id := range changed + untouched {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	o.redis.Do(t, "save")
	o.restart()
	o.redone()
}

// What was given up, and was replayed just before Redis lost its last writes, is older than the window of the operator,
// and no stamp has been moved since.
func TestADeadLetterThatWasReplayedIsDoneAgainWhenRedisLosesThat(t *testing.T) {
	for name, window := range testbed.SomeOf(t, map[string]string{
		"as the stamp says": "", "with a window": ", failover_window: 1ms",
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testbed.MySQL(t))
			s.forbid()
			s.redisMore = window
			may := func(keys string) {
				s.redis.Do(t, "ACL", "SETUSER", "freshet", "reset", "on", ">redis-password", "+@all", "~product:*", "~freshet:*",
					keys)
			}
			may("~none")
			s.run()
			s.stamped()
			s.cache("secret:1")
			s.cache("secret:2")
			s.write(1)
			s.await("the key is given up", func(st *app.Status) bool { return st.DeadLetters == 1 && st.Parked == 0 })
			s.redis.Do(t, "save")
			<-time.After(3 * time.Second) // longer than the window
			may("~secret:*")
			s.ask("dlq", "replay", "--all")
			s.gone("secret:1")
			s.await("nothing is in trouble", func(st *app.Status) bool { return st.DeadLetters == 0 && st.Parked == 0 })
			s.stamped()
			testbed.Must(t, s.redis.Kill())
			testbed.Must(t, s.redis.Start(t.Context()))
			may("~secret:*")
			s.await("redis is in doubt", func(st *app.Status) bool { return raised(st, alarm.RedisChanged) })
			s.freshAgain()
			if s.cached("secret:1") {
				t.Error("secret:1 is back, and nobody deletes it")
			}
			s.kept("secret:2")
		})
	}
}
