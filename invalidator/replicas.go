package invalidator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// Redis replicates without waiting: a replica that is promoted may lack what its master has acknowledged. WAIT waits
// for the replicas to acknowledge what was written on its connection before it
// (https://redis.io/docs/latest/commands/wait/), so one at the end of a pipeline is enough. But a delete that finds
// nothing writes nothing, and the one that found the key may have been sent on another connection, whose WAIT failed.
// Redis up to 7 waits for all that any connection has written, Redis 8 and Valkey 9 do not. So something is written
// just before each WAIT: a replica that has this has all before it. Where Redis has no memory for that, a script writes
// it, which is allowed to go beyond: deletes need none, and make room.

// WaitedKey is the key that is written before a WAIT; in a cluster each slot has its own, whose name begins with it.
func WaitedKey(prefix string) string { return write.Names{Prefix: prefix}.Waited("") }

// waiting is a WAIT in a pipeline, and the write of a key before it.
type waiting struct {
	key     string
	asking  bool
	written redis.Cmder // nil: there is none
	replied *redis.IntCmd
}

// waitedKept is how long the key is kept that is written before a WAIT.
const waitedKept = time.Minute

// waitIn adds a WAIT to a pipeline, if replicas are waited for; nil: they are not. In a cluster the write before it
// goes to the slot of a key that the pipeline is about, as ASKING does if that is sent before the key's own command.
func (s *Single) waitIn(ctx context.Context, pipe redis.Pipeliner, key string, asking bool) *waiting {
	if s.options.WaitReplicas == 0 {
		return nil
	}
	o := &s.options
	w := &waiting{asking: asking}
	if key != "" { // what is about no key has nothing that replicas could lack
		if !s.slots.Load() {
			key = ""
		}
		w.key = write.Names{Prefix: o.KeyPrefix}.Waited(key)
		queueAsking(ctx, pipe, asking)
		w.written = pipe.Set(ctx, w.key, 1, waitedKept)
	}
	s.queueWait(ctx, pipe, w)
	return w
}

func (s *Single) queueWait(ctx context.Context, pipe redis.Pipeliner, w *waiting) {
	w.replied = redis.NewIntCmd(ctx, "wait", s.options.WaitReplicas, (s.options.Timeout / 2).Milliseconds())
	_ = pipe.Process(ctx, w.replied) // only queues
}

// writesBeyond sets a key for some ms, also where Redis is at its maxmemory and may evict nothing. Redis knows that
// flag from version 7 on.
const writesBeyond = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])"

// despite makes the write before a WAIT, and then that, once more if Redis had no memory for it.
func (s *Single) despite(ctx context.Context, w *waiting) {
	if w == nil || w.written == nil || retry.ClassifyRedis(w.written.Err()) != retry.Memory {
		return
	}
	pipe := s.client.Pipeline()
	queueAsking(ctx, pipe, w.asking)
	w.written = pipe.Eval(ctx, writesBeyond, []string{w.key}, waitedKept.Milliseconds())
	s.queueWait(ctx, pipe, w)
	_, _ = pipe.Exec(ctx) // each has its own error
}

// made reports whether the error of a pipeline is that of its WAIT, or of the write before it.
func (w *waiting) made(err error) bool {
	return w != nil && (w.written != nil && w.written.Err() != nil && errors.Is(err, w.written.Err()) ||
		w.replied.Err() != nil && errors.Is(err, w.replied.Err()))
}

// unreplicated returns why the commands before a WAIT do not count as acknowledged, though Redis has answered them;
// nil: they do. As for a Redis that is away, they are sent again until they are. An answer to WAIT is none to them, so
// the error holds it as text. Where the key before it is another node's, the node is not away: they stray.
func (s *Single) unreplicated(w *waiting) error {
	if w == nil {
		return nil
	}
	unknown := func(command string, err error) error {
		return fmt.Errorf("it is not known whether %d replicas have it (redis.wait_replicas): %s: %s", s.options.WaitReplicas,
			command, err.Error())
	}
	var unwritten error
	if w.written != nil {
		unwritten = w.written.Err()
	}
	redirected, _ := retry.IsRedirection(unwritten)
	switch n, err := w.replied.Result(); {
	case redirected:
		return fmt.Errorf("%w: SET %s: %s", errRerouted, w.key, unwritten.Error())
	case unwritten != nil:
		return unknown("SET "+w.key, unwritten)
	case err != nil:
		return unknown("WAIT", err)
	case n < int64(s.options.WaitReplicas):
		return fmt.Errorf("%d of %d replicas have acknowledged it within %s (redis.wait_replicas)", n, s.options.WaitReplicas,
			s.options.Timeout/2)
	}
	return nil
}
