package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// moveKeys has the application use another database of Redis, and freshet only later. An operator has the keys
// forgotten that are there.
func (u *unrest) moveKeys(t *shelved) {
	u.t.Helper()
	const to = 1
	for _, s := range u.shelves() {
		c := s.redis.NewClient(&redis.Options{DB: to})
		u.t.Cleanup(func() { _ = c.Close() })
		s.place.Store(c)
	}
	u.cacheLast(t)
	u.remove(t)
	u.finish() // where nobody looks any more
	var deleting []*rig
	for _, s := range u.shelves() {
		deleting = append(deleting, s.rig)
	}
	u.restart(deleting, func(r *rig) { r.cfg.redis += fmt.Sprintf(", db: %d", to) })
	u.answer("redis_moved")
}

// splitGroups has a second invalidator of each group work on a Redis of its own, where it deletes half of the keys. An
// operator stops it, and has the keys forgotten.
func (u *unrest) splitGroups(t *shelved) {
	u.t.Helper()
	began := time.Now()
	var astray []*rig
	for i, s := range u.shelves() {
		m := u.fleet.prepare("invalidator", fmt.Sprintf("astray-%d", i))
		m.cfg = s.cfg
		m.redis = testbed.Redis(u.t, strings.Fields("--user freshet on >secret ~* &* "+rightsOf[s == u.answering])...)
		m.resp = proxy.StartRESP(u.t, m.redis.Addr)
		m.write(u.fleet.inKafka(u.group(i)), m.toRedis())
		m.launch(m.role)
		astray = append(astray, m)
	}
	for _, m := range append([]*rig{u.answering.rig, u.passing.rig}, astray...) {
		m.await("have its part of the partitions", 3*time.Minute, func(s status) bool {
			return len(s.Partitions) == u.fleet.partitions/2
		})
	}
	u.cacheLast(t)
	u.remove(t)
	u.finish()
	for _, m := range astray {
		m.finish(3 * time.Minute)
	}
	// The other group may not ask Redis who it is.
	testbed.Eventually(u.t, 3*time.Minute, "one of the group says redis_split", func() bool {
		return astray[0].hasSaid("redis_split", began) || u.answering.hasSaid("redis_split", began)
	})
	for _, m := range astray {
		m.stop()
	}
	u.answer("redis_split")
}
