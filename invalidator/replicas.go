package invalidator

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Redis replicates without waiting: a replica that is promoted may lack what its master has acknowledged. WAIT waits
// for the replicas to acknowledge all that was written on its connection before it
// (https://redis.io/docs/latest/commands/wait/), so one at the end of a pipeline is enough.

// waitIn adds a WAIT to a pipeline, if replicas are waited for; nil: they are not.
func (s *Single) waitIn(ctx context.Context, pipe redis.Pipeliner) *redis.IntCmd {
	if s.options.WaitReplicas == 0 {
		return nil
	}
	wait := redis.NewIntCmd(ctx, "wait", s.options.WaitReplicas, (s.options.Timeout / 2).Milliseconds())
	_ = pipe.Process(ctx, wait) // only queues
	return wait
}

// isOf reports whether the error of a pipeline is that of its WAIT.
func isOf(err error, wait *redis.IntCmd) bool {
	return wait != nil && wait.Err() != nil && errors.Is(err, wait.Err())
}

// unreplicated returns why the commands before a WAIT do not count as acknowledged, though Redis has answered them;
// nil: they do. As for a Redis that is away, they are sent again until they are. An answer to WAIT is none to them, so
// the error holds it as text.
func (s *Single) unreplicated(wait *redis.IntCmd) error {
	if wait == nil {
		return nil
	}
	switch n, err := wait.Result(); {
	case err != nil:
		return fmt.Errorf("it is not known whether %d replicas have it (redis.wait_replicas): WAIT: %s",
			s.options.WaitReplicas, err.Error())
	case n < int64(s.options.WaitReplicas):
		return fmt.Errorf("%d of %d replicas have acknowledged it within %s (redis.wait_replicas)", n, s.options.WaitReplicas,
			s.options.Timeout/2)
	}
	return nil
}
