package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

const (
	// sampledKeys is about how many keys of a server are looked at, samplePage how many with one command, and
	// sampleTime how long that may take. SCAN comes to keys in the order of their hashes, so the first that there are
	// are as good as any. Places without keys do not count: where an answer to a doubt has ended early, all the first
	// places are empty.
	sampledKeys = 20_000
	samplePage  = 500
	sampleTime  = 5 * time.Second
	// sampleRest is how many times as long as Redis took for a page the next one is waited with.
	sampleRest = 4
	// askedKeys is how many keys of a template Redis is asked about.
	askedKeys = 200
	// largeValue is in bytes, and longValue in members: from there on one key takes Redis' core, or a reader's line,
	// for long.
	largeValue = 1 << 20
	longValue  = 10_000
)

// sample looks at keys that are cached, whether they are what the mappings expect.
type sample struct {
	keys *keyspace.Keyspace
	of   map[string]*sampled // by the text of the template
	// looked is about how many keys were looked at, of size.
	looked, size int64
	// taken: a server was looked at. part: it has more keys.
	taken, part bool
	// withheld is why Redis does not say.
	withheld error
}

// sampled is what was seen of the keys of a template.
type sampled struct {
	pos spec.Pos
	// keys is how many there were, asked about how many Redis was asked, and lasting how many of those do not expire.
	keys, asked, lasting int
	// large and long are the largest value, and the one of most members.
	large, long sized
	// expires says that the application is expected to have its keys expire: freshet does not keep them itself.
	expires bool
}

// sized is a key and how large its value is.
type sized struct {
	key string
	n   int64
}

// newSample returns a sample of the keys that the mappings can have made. tables are those of the source, as far as
// they are known. nil: there is nothing to look for.
func newSample(c *config.Config, tables []*event.Table) *sample {
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return nil // said elsewhere
	}
	keys, err := keyspace.New(route.Mappings(), tables, c.Redis.KeyPrefix)
	if err != nil || len(keys.Targets()) == 0 {
		return nil
	}
	s := &sample{keys: keys, of: map[string]*sampled{}}
	for _, t := range keys.Targets() {
		text := t.Action.Key.Text
		if s.of[text.Value] == nil {
			s.of[text.Value] = &sampled{pos: text.At(0)}
		}
		switch t.Action.Kind {
		case event.ActionDelete, event.ActionRebuild, event.ActionHash:
			s.of[text.Value].expires = true
		}
	}
	return s
}

// take looks at keys of a server.
func (s *sample) take(ctx context.Context, rdb *redis.Client) {
	if s == nil || s.withheld != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	size, err := rdb.DBSize(ctx).Result()
	if err != nil {
		s.withheld = err
		return
	}
	s.size, s.taken = s.size+size, true
	cursor := uint64(0)
	for looked := int64(0); ; {
		begun := time.Now()
		var page []string
		// Without a pattern: it would not be known how many keys were looked at.
		if page, cursor, err = rdb.Scan(ctx, cursor, "", samplePage).Result(); err == nil {
			err = s.ask(ctx, rdb, page)
		}
		if err == nil {
			looked += int64(len(page))
		}
		switch {
		case err != nil && (looked == 0 || redis.IsPermissionError(err)):
			s.withheld = err
			return
		case err != nil, cursor == 0, looked >= sampledKeys:
			s.looked += looked
			s.part = s.part || cursor != 0 || err != nil
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(sampleRest * time.Since(begun)):
		}
	}
}

// ask asks about the keys of a page.
func (s *sample) ask(ctx context.Context, rdb *redis.Client, page []string) error {
	type asked struct {
		key   string
		of    []*sampled
		kind  *redis.StatusCmd
		ttl   *redis.DurationCmd
		value *redis.IntCmd
	}
	var all []*asked
	for _, key := range page {
		a := &asked{key: key}
		s.keys.Match(key, func(t *keyspace.Target) {
			of := s.of[t.Action.Key.Text.Value]
			if slices.Contains(a.of, of) {
				return
			}
			if of.keys++; of.keys <= askedKeys {
				a.of = append(a.of, of)
			}
		})
		if len(a.of) > 0 {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return nil
	}
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, a := range all {
			a.kind, a.ttl = p.Type(ctx, a.key), p.PTTL(ctx, a.key)
		}
		return nil
	})
	if redis.IsPermissionError(err) {
		return err
	}
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, a := range all {
			a.value = length(ctx, p, a.kind.Val(), a.key)
		}
		return nil
	})
	for _, a := range all {
		if a.kind.Err() != nil || a.kind.Val() == "none" {
			continue // it is gone, or on another node of a cluster
		}
		for _, of := range a.of {
			of.asked++
			if a.ttl.Err() == nil && a.ttl.Val() == -1 {
				of.lasting++
			}
			most := &of.long
			if a.kind.Val() == "string" {
				most = &of.large
			}
			if a.value != nil && a.value.Val() > most.n {
				*most = sized{a.key, a.value.Val()}
			}
		}
	}
	if redis.IsPermissionError(err) {
		return err
	}
	return ctx.Err()
}

// length asks how large a value is: the bytes of a string, the members of a collection. nil: of what type it is, nobody
// knows.
func length(ctx context.Context, p redis.Pipeliner, kind, key string) *redis.IntCmd {
	switch kind {
	case "string":
		return p.StrLen(ctx, key)
	case "hash":
		return p.HLen(ctx, key)
	case "list":
		return p.LLen(ctx, key)
	case "set":
		return p.SCard(ctx, key)
	case "zset":
		return p.ZCard(ctx, key)
	case "stream":
		return p.XLen(ctx, key)
	}
	return nil
}

// report says what was seen.
func (s *sample) report(c *config.Config, r *Report) {
	switch {
	case s == nil, !s.taken && s.withheld == nil:
		return
	case redis.IsPermissionError(s.withheld):
		r.add(OK, fmt.Sprintf("what is cached was not looked at: %v", s.withheld),
			fmt.Sprintf("to have it looked at: ACL SETUSER %s +dbsize +scan +type +pttl +strlen +hlen +llen +scard +zcard +xlen",
				orDefaultUser(c)))
		return
	case retry.IsUnknownCommand(s.withheld): // nobody may ask, as where a service runs it
		r.add(OK, fmt.Sprintf("what is cached was not looked at: %v", s.withheld), "")
		return
	case s.withheld != nil:
		r.add(Warn, fmt.Sprintf("what is cached could not be looked at: %v", s.withheld), "")
		return
	case s.size == 0:
		r.add(OK, "redis has no keys yet", "")
		return
	}
	looked := fmt.Sprintf("all %d keys", s.size)
	if s.part {
		looked = fmt.Sprintf("%d of about %d keys", s.looked, s.size)
	}
	found := 0
	for _, text := range slices.SortedFunc(maps.Keys(s.of), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.of[a].pos.Line, s.of[b].pos.Line), strings.Compare(a, b))
	}) {
		of := s.of[text]
		found += of.keys
		of.report(fmt.Sprintf("%q (%s)", text, of.pos), looked, r)
	}
	r.add(OK, fmt.Sprintf("looked at %s in redis: %d are of the mappings", looked, found), "")
}

func (of *sampled) report(template, looked string, r *Report) {
	if of.keys == 0 {
		r.add(Warn, fmt.Sprintf("looked at %s in redis, and none is of %s", looked, template),
			"unless such keys are few, or not cached now, compare the template with the keys of the application; `freshet "+
				"explain` says which keys a row has")
		return
	}
	if of.expires && of.lasting > 0 {
		r.add(Warn, fmt.Sprintf("%d of %d keys of %s have no TTL: should an invalidation ever be lost, they are stale "+
			"until their rows change again", of.lasting, of.asked, template), "give them one where they are filled: SET … EX 3600")
	}
	if of.large.n > largeValue {
		r.add(Warn, fmt.Sprintf("a value of %s has %d bytes: %q", template, of.large.n, of.large.key),
			"cache it in parts: each change of the row has readers fill all of it again")
	}
	if of.long.n > longValue {
		r.add(Warn, fmt.Sprintf("a value of %s has %d members: %q", template, of.long.n, of.long.key),
			"split it by a part of its key: each delete has readers fill all of it again")
	}
}
