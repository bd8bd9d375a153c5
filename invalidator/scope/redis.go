package scope

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/retry"
)

// Single is a [Redis] that is one server.
type Single struct{ Client *redis.Client }

// Scan implements [Redis].
func (s Single) Scan(ctx context.Context, cursor uint64, glob string, count int64) ([]string, uint64, error) {
	return s.Client.Scan(ctx, cursor, glob, count).Result()
}

// Fields implements [Redis].
func (s Single) Fields(ctx context.Context, key string, cursor uint64, count int64) ([]string, uint64, error) {
	pairs, next, err := s.Client.HScan(ctx, key, cursor, "", count).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, 0, nil
	}
	fields := pairs[:0]
	for i := 0; i+1 < len(pairs); i += 2 {
		fields = append(fields, pairs[i])
	}
	return fields, next, err
}

// Server implements [Redis]: the run_id of INFO, which a server draws when it starts, and its master_replid, which is
// another one once it has taken another's data. One that does not say is like any other; the alarm redis_unknown
// says so.
func (s Single) Server(ctx context.Context) (string, error) {
	pipe := s.Client.Pipeline()
	about := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")}
	_, _ = pipe.Exec(ctx) // the errors are the commands'
	var is []string
	for _, a := range about {
		info, err := a.Result()
		if retry.IsBarred(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(info) {
			name, id, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "run_id" || name == "master_replid" {
				is = append(is, id)
			}
		}
	}
	return strings.Join(is, " "), nil
}

// Cluster is a [Redis] that is all masters of a cluster, one after the other. A key that moves from one to another
// during a pass may be missed by it, so each distribution of the slots counts as another server.
type Cluster struct {
	// Masters returns their clients, and what tells this distribution of the slots from every other; "" while slots are
	// being moved.
	Masters func(ctx context.Context) (clients []*redis.Client, as string, err error)

	mu     sync.Mutex
	last   []*redis.Client
	unsure int
}

// A cursor of a cluster has the ordinal of the master above that of the master's own.
const ordinalShift = 54

// known returns the masters as they were last asked for.
func (c *Cluster) known(ctx context.Context) ([]*redis.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		return c.last, nil
	}
	clients, _, err := c.Masters(ctx)
	c.last = clients
	return clients, err
}

// forget has the masters asked for again if one of them fails: it may have been replaced.
func (c *Cluster) forget(err error) {
	if err != nil {
		c.mu.Lock()
		c.last = nil
		c.mu.Unlock()
	}
}

// Scan implements [Redis].
func (c *Cluster) Scan(ctx context.Context, cursor uint64, glob string, count int64) ([]string, uint64, error) {
	masters, err := c.known(ctx)
	if err != nil {
		return nil, 0, err
	}
	n := int(cursor >> ordinalShift)
	if n >= len(masters) {
		return nil, 0, nil // there are fewer by now: the pass is done again
	}
	keys, next, err := Single{masters[n]}.Scan(ctx, cursor&(1<<ordinalShift-1), glob, count)
	c.forget(err)
	if next == 0 && n+1 < len(masters) {
		n++
	} else if next == 0 {
		return keys, 0, err
	}
	return keys, uint64(n)<<ordinalShift | next, err
}

// Fields implements [Redis]. Of a key that none serves there are none: its slot is being moved, and the pass is done
// again.
func (c *Cluster) Fields(ctx context.Context, key string, cursor uint64, count int64) ([]string, uint64, error) {
	masters, err := c.known(ctx)
	for _, m := range masters {
		fields, next, err := Single{m}.Fields(ctx, key, cursor, count)
		if elsewhere, _ := retry.IsRedirection(err); !elsewhere {
			c.forget(err)
			return fields, next, err
		}
	}
	return nil, 0, err
}

// Server implements [Redis].
func (c *Cluster) Server(ctx context.Context) (string, error) {
	masters, as, err := c.Masters(ctx)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	c.last = masters
	if as == "" {
		c.unsure++
		as = strconv.Itoa(c.unsure) // like no other
	}
	c.mu.Unlock()
	for _, m := range masters {
		is, err := Single{m}.Server(ctx)
		if err != nil {
			return "", err
		}
		as += " " + is
	}
	return as, nil
}

// Size implements [Redis].
func (c *Cluster) Size(ctx context.Context) (keys int64, err error) {
	masters, err := c.known(ctx)
	for _, m := range masters {
		n, err := Single{m}.Size(ctx)
		if err != nil {
			return 0, err
		}
		keys += n
	}
	return keys, err
}

// Size implements [Redis]. Where it is withheld there are none: it is for display only.
func (s Single) Size(ctx context.Context) (int64, error) {
	n, err := s.Client.DBSize(ctx).Result()
	if retry.IsBarred(err) {
		return 0, nil
	}
	return n, err
}
