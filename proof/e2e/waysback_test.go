package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// way is a way in which Redis comes back with older data.
type way struct {
	name string
	args string // of Redis
	// cut is how often a cut has it, and soak how often a soak.
	cut, soak int
	// keep has what Redis holds be kept somewhere, and returns what has Redis come back with that.
	keep func(o *older) (goBack func())
}

var waysBack = []way{
	{"a snapshot", "--save 1 1", 2, 10, func(o *older) func() { return o.keepSnapshot(func() {}) }},
	{"a snapshot by the stock settings", "--save 3600 1 300 100 60 10000", 1, 3, func(o *older) func() {
		return o.keepSnapshot(o.changeMuch)
	}},
	{"a log without its end", "--appendonly yes --appendfsync everysec", 2, 10, (*older).keepLog},
	{"a replica without the last deletes", "", 2, 10, (*older).keepReplica},
}

// restart kills Redis and starts it again.
func (o *older) restart() {
	o.r.t.Helper()
	testbed.Must(o.r.t, o.r.redis.Kill())
	testbed.Must(o.r.t, o.r.redis.Start(context.Background()))
}

// keepSnapshot waits until Redis has saved a snapshot by itself that was begun after now, and has it save no other. do
// is what has it save one.
func (o *older) keepSnapshot(do func()) (goBack func()) {
	t, rdb := o.r.t, o.r.redis.Client()
	t.Helper()
	idle := func() bool {
		info, err := rdb.Info(t.Context(), "persistence").Result()
		return err == nil && strings.Contains(info, "rdb_bgsave_in_progress:0")
	}
	saved := func() int64 {
		at, err := rdb.LastSave(t.Context()).Result()
		testbed.Must(t, err)
		return at
	}
	testbed.Eventually(t, 3*time.Minute, "redis saves no snapshot that was begun before", idle)
	before := saved()
	do()
	testbed.Eventually(t, 3*time.Minute, "redis saves a snapshot", func() bool { return saved() != before })
	testbed.Must(t, rdb.ConfigSet(t.Context(), "save", "").Err())
	testbed.Eventually(t, 3*time.Minute, "redis saves no more", idle)
	return o.restart
}

// others are keys of nobody's rows, which no load compares.
const others = "other:"

// forgetOthers removes these keys.
func (o *older) forgetOthers() {
	t, rdb := o.r.t, o.r.redis.Client()
	t.Helper()
	keys, err := rdb.Keys(t.Context(), others+"*").Result()
	testbed.Must(t, err)
	if len(keys) > 0 {
		testbed.Must(t, rdb.Unlink(t.Context(), keys...).Err())
	}
}

// changeMuch changes 10,000 keys of others.
func (o *older) changeMuch() {
	t := o.r.t
	t.Helper()
	pipe := o.r.redis.Client().Pipeline()
	for n := range 10_000 {
		pipe.Set(t.Context(), fmt.Sprint(others, n), "other", 0)
	}
	_, err := pipe.Exec(t.Context())
	testbed.Must(t, err)
}

// keepLog waits until the file that Redis appends commands to has all up to now. The machine is lost before anything
// later is on its disk: half of the time the file ends within a command.
func (o *older) keepLog() (goBack func()) {
	t := o.r.t
	t.Helper()
	mark := fmt.Appendf(nil, "mark-%d\r\n", time.Now().UnixNano())
	o.r.redis.Do(t, "set", others+"mark", bytes.TrimSpace(mark))
	var end int64
	testbed.Eventually(t, 3*time.Minute, "redis writes its log", func() bool {
		text, err := os.ReadFile(o.log())
		testbed.Must(t, err)
		at := bytes.Index(text, mark)
		end = int64(at + len(mark))
		return at >= 0
	})
	if o.rnd.IntN(2) == 0 {
		end += 1 + o.rnd.Int64N(10) // no command is as short
	}
	return func() {
		t.Helper()
		testbed.Must(t, o.r.redis.Kill())
		testbed.Must(t, os.Truncate(o.log(), end))
		testbed.Must(t, o.r.redis.Start(context.Background()))
	}
}

// log returns the name of the file that Redis appends commands to.
func (o *older) log() string {
	o.r.t.Helper()
	files, err := filepath.Glob(filepath.Join(o.r.redis.Dir, "appendonlydir", "*.incr.aof"))
	testbed.Must(o.r.t, err)
	if len(files) != 1 {
		o.r.t.Fatalf("files of commands: %v", files)
	}
	return files[0]
}

// keepReplica starts a replica, and cuts its line once it has all up to now. It is promoted in the place of its master.
func (o *older) keepReplica() (goBack func()) {
	t := o.r.t
	t.Helper()
	master := o.r.redis
	line := proxy.Start(t, master.Addr)
	host, port, _ := strings.Cut(line.Addr(), ":")
	replica := testbed.Redis(t, o.args...)
	replica.Do(t, "replicaof", host, port)
	master.Do(t, "set", others+"mark", replica.Port)
	testbed.Eventually(t, 3*time.Minute, "the replica has all", func() bool {
		return replica.Client().Get(t.Context(), others+"mark").Val() == fmt.Sprint(replica.Port)
	})
	line.Cut()
	return func() {
		t.Helper()
		testbed.Must(t, master.Kill())
		replica.Do(t, "replicaof", "no", "one")
		o.r.redis = replica
		o.into.Store(replica)
		o.r.resp.Aim(replica.Addr)
		testbed.Must(t, master.Start(context.Background())) // nobody is led to it any more
	}
}
