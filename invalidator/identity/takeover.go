package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Several processes share the work on a Redis, and notice at different times that another server has taken its place.
// Each says with what it has finished on which Redis that was done, by a name of it, and who goes on with the work of
// another compares.

// notSure is the name of Redis while a connection leads to a server of which nothing is recorded yet.
const notSure = "~"

// apart is by how much the clocks of two processes may differ, at the most, together with what an uptime in whole
// seconds leaves open: so much later than the last work on another server Redis must have begun with nothing.
const apart = 5 * time.Second

// maxName is how long the name of a cluster is: beyond it a hash stands for the names of its servers.
const maxName = 900

// On returns the name of the Redis on which all was done that this process has finished, but for what is in doubt; "":
// it is not known.
func (w *Watch) On() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.on
}

// worksOn takes note of the server that is known from now on. What it may lack is recorded.
func (w *Watch) worksOn(run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(w.answers, func(s seen) bool { return s.run != run }) {
		run = notSure
	}
	w.on = run
}

// On is [Watch.On] of a cluster: it names all masters that have slots, as they are now. Of one that nobody has looked
// at yet nothing is recorded.
func (c *Cluster) On() string {
	members := c.members()
	c.mu.Lock()
	defer c.mu.Unlock()
	var servers, others []string
	for _, m := range members {
		if m.Slots.isEmpty() {
			continue
		}
		run := ""
		if w := c.watched[m.Address]; w != nil && w.ID == m.ID {
			run = w.watch.On()
		}
		if run == "" || run == notSure {
			others = append(others, run)
		} else {
			servers = append(servers, short(run))
		}
	}
	switch {
	case len(servers) > 0 && len(others) > 0, slices.Contains(others, notSure):
		return notSure
	case len(others) > 0:
		return ""
	}
	slices.Sort(servers)
	name := strings.Join(servers, ".")
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		return hex.EncodeToString(sum[:])
	}
	return name
}

// short is the name of a server in that of its cluster.
func short(run string) string { return run[:min(8, len(run))] }

// Apart reports whether two names that On returns have no server in common.
func Apart(a, b string) bool {
	if a == "" || b == "" || a == notSure || b == notSure {
		return false
	}
	others := strings.Split(b, ".")
	return !slices.ContainsFunc(strings.Split(a, "."), func(s string) bool { return slices.Contains(others, s) })
}

// TakeOver takes note that this process goes on with a part of the work that was done last on a Redis with a name, and
// finished at a time. It records what the Redis of On may lack of it. It fails while that is not known, and with ctx.
func (w *Watch) TakeOver(ctx context.Context, part, on string, at time.Time) error {
	return w.tookOver(ctx, w.deps.Redis, func(s server) string {
		if suspicion(known{Run: on, Seen: at.Add(apart)}, s, time.Now()) == "" {
			return ""
		}
		return lateFor(part)
	})
}

// lateFor says why what a Redis holds is in doubt.
func lateFor(part string) string {
	return fmt.Sprintf("another process, which had %s before, worked on another one to the end", part)
}

// TakeOver is [Watch.TakeOver] of a cluster. A master that began with nothing has all that was done to its slots.
func (c *Cluster) TakeOver(ctx context.Context, part, on string, _ time.Time) error {
	c.mu.Lock()
	var masters []watched
	for _, m := range c.watched {
		if !m.Slots.isEmpty() {
			masters = append(masters, *m)
		}
	}
	c.mu.Unlock()
	if len(masters) == 0 {
		return errors.New("no master of the cluster is known yet")
	}
	before := strings.Split(on, ".")
	for _, m := range masters {
		if slices.Contains(before, short(m.watch.On())) {
			continue
		}
		if err := m.watch.tookOver(ctx, m.Redis, func(s server) string {
			if s.keys == 0 || s.loaded == 0 && s.parent == "" {
				return ""
			}
			return lateFor(part)
		}); err != nil {
			return err
		}
	}
	return nil
}

// tookOver records what the Redis of On may lack, if suspect says why it may.
func (w *Watch) tookOver(ctx context.Context, c redis.Cmdable, suspect func(s server) (why string)) error {
	asked, cancel := context.WithTimeout(ctx, 2*asks)
	defer cancel()
	key, before, named := w.asked()
	if !named {
		return errors.New("it is not known yet who redis was")
	}
	info, err := c.Info(asked).Result()
	if err != nil {
		return err
	}
	s, ok := parse(info, w.options.DB)
	if on := w.On(); !ok || s.run != on || s.replica || s.loading {
		return fmt.Errorf("redis %s has not been compared yet with what it was", w.options.Address)
	}
	why := suspect(s)
	if why == "" {
		return nil
	}
	stamp := found{is: absent}
	if key != "" {
		text, err := c.Get(asked, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) && !redis.IsPermissionError(err) {
			return err
		}
		if err == nil {
			stamp = found{is: expected, text: text, before: before}
		}
	}
	now := time.Now()
	return w.doubt(ctx, why, seen{server: s, at: now}, w.lacks(known{Seen: now}, seen{stamp: stamp}))
}
