package identity

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/doubt/alarm"
)

// A stamp is a key of freshet's own in Redis. It says up to where in the log everything is finished. Redis' data is
// always a beginning of the history of its writes: a snapshot, a file of commands that was cut off, a replica that
// lacks the last writes. A stamp is written after all deletes that it speaks of were acknowledged. So whatever the
// data that Redis comes back with, and by whatever way it got there, its own stamp says which deletes it has.
//
// A stamp is moved from one place to the next by a script, on the server that was looked at last and only if it holds
// what was put there last. So no stamp of older data is written over before it was read.
//
// Of several processes that share a Redis one moves the stamp, the leader. The others only read it, to say how old the
// data of another Redis is: that it changes is the leader's work to them. Who begins to lead takes what it then finds
// for what was put there last.

// In a cluster a stamp also says of which slots it speaks: those that the node had when it was written, and of which
// all was known to be well. A slot may bring what a doubt is about, and be cleaned only later. Data of the time between
// holds a stamp of before, which speaks of the others.

// StampKey is what the name of the key begins with, after the prefix of all keys.
const StampKey = "freshet:stamp:"

//go:embed stamp.lua
var stampScript string

// renewing moves a stamp. Arguments: run_id and master_replid of the server, what the stamp holds, what it is to hold.
// It returns 1 if it holds that now.
var renewing = redis.NewScript(stampScript)

// stamp is what is known of the stamp.
type stamp struct {
	mu sync.Mutex
	// key is where it is; named is set once that is known. "": the server has no slot for one, and holds no key of ours.
	key   string
	named bool
	// of says which slots the server has; "": it is no node of a cluster.
	of string
	// leads says that this process moves it, and reign tells one time that it did, or did not, from the others.
	leads bool
	reign int
	// begun is set once it is known what Redis holds: last. next is what it may hold instead: it was asked to.
	begun      bool
	last, next string
	// refused is set once it was said that Redis refuses it.
	refused bool
}

// what says what a server holds for a stamp.
type what int

const (
	unsure what = iota
	absent
	expected
	another
)

// found is the stamp that a server held.
type found struct {
	is   what
	text string
	// before is what it was last known to hold when the server was asked.
	before held
	// swapped says of one that is absent that there was one before, and that the server has swapped databases since it was
	// started: this may be another one, in which nothing was deleted.
	swapped bool
}

// held is what a stamp was known to hold, in which reign and where.
type held struct {
	text  string
	reign int
	key   string
}

// lead takes note of whether this process moves the stamp, and returns it. What it knew before says nothing then:
// others have moved the stamp, or will.
func (s *stamp) lead(leads bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leads != s.leads {
		s.leads, s.begun, s.last, s.next = leads, false, "", ""
		s.reign++
	}
	return leads
}

// asked returns the key to ask for, and what it was last known to hold; false while it is not known.
func (w *Watch) asked() (key string, before held, named bool) {
	s := &w.stamp
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, s.now(), s.named
}

// place says where the stamp is from now on. What was known of another one says nothing of it.
func (s *stamp) place(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named && s.key == key {
		return
	}
	s.key, s.named = key, true
	s.begun, s.last, s.next = false, "", ""
	s.reign++
}

// belongs takes note of which slots the server has.
func (s *stamp) belongs(of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of = of
}

// says returns the place that a text names; "": none, or it does not speak of just the slots that the server has.
func (s *stamp) says(text string) (place string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == "" {
		return text
	}
	of, place, _ := strings.Cut(text, " ")
	if of != s.of {
		return ""
	}
	return place
}

// known returns what the stamp was last known to hold.
func (s *stamp) known() held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// now is known for the caller that has the lock.
func (s *stamp) now() held { return held{s.last, s.reign, s.key} }

// find returns what a server answered that was asked for the stamp when it was last known to hold before.
func (s *stamp) find(before held, text string, err error) found {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, redis.Nil):
		return found{is: absent, before: before}
	case err != nil:
		return found{}
	case !s.begun || text == before.text || text == s.last || text == s.next:
		return found{is: expected, text: text, before: before}
	case before != s.now():
		return found{} // it was moved meanwhile, and this may be what it held between
	}
	return found{is: another, text: text, before: before}
}

// swaps finds how often a server has been asked to swap databases, and how often it refused that (from Redis 6.2 on).
var swaps = regexp.MustCompile(`cmdstat_swapdb:calls=(\d+)(?:.*failed_calls=(\d+))?`)

// hasSwapped reports whether a server has swapped databases. One that does not say has not. It fails with the
// connection.
func hasSwapped(ctx context.Context, c redis.Cmdable) (bool, error) {
	info, err := c.Info(ctx, "commandstats").Result()
	var answer redis.Error
	if errors.As(err, &answer) {
		err = nil
	}
	n := swaps.FindStringSubmatch(info)
	return n != nil && n[1] != "0" && n[1] != n[2], err
}

// confirm takes note of what a server holds that is the one it was.
func (s *stamp) confirm(f found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leads || f.is == unsure || f.before != s.now() || f.is == expected && s.begun && f.text != s.next {
		return
	}
	s.begun, s.last, s.next = true, f.text, ""
}

// adopt takes note of what another server holds.
func (s *stamp) adopt(f found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = s.leads && f.is != unsure && f.before.reign == s.reign
	s.last, s.next = f.text, ""
}

// renew moves the stamp to where everything is finished now, on the server that Redis is known to be. of says of which
// slots that is known; "": it is no node of a cluster.
func (w *Watch) renew(ctx context.Context, was known, of string) {
	s := &w.stamp
	if leads := w.deps.Leads == nil || w.deps.Leads(); !s.lead(leads) || w.deps.Place == nil {
		return
	}
	place, ok := w.deps.Place()
	if of != "" {
		place = of + " " + place
	}
	s.mu.Lock()
	if s.next != "" {
		place, ok = s.next, true // it was asked for before, and nobody knows whether it was done
	}
	held := s.last
	ok = ok && s.begun && place != held && s.key != ""
	if ok {
		s.next = place
	}
	s.mu.Unlock()
	if !ok {
		return
	}
	key, _, _ := w.asked()
	done, err := renewing.Run(ctx, w.deps.Redis, []string{key}, was.Run, was.Repl, held, place).Bool()
	w.refused(key, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && done {
		s.last, s.next = place, ""
	}
}

// refused says once that Redis takes no stamp, if that is why a command failed.
func (w *Watch) refused(key string, err error) {
	if w.deps.Place == nil || err == nil || !redis.IsPermissionError(err) {
		return
	}
	w.stamp.mu.Lock()
	said := w.stamp.refused
	w.stamp.refused = true
	w.stamp.mu.Unlock()
	if said {
		return
	}
	w.deps.Alarms.Raise(alarm.RedisUnknown, fmt.Sprintf("redis %s refuses the key %s, in which freshet writes how far it has "+
		"come (%v): should Redis come back with older data, all keys will be forgotten; give the user in redis.username the "+
		"right to it (ACL SETUSER … ~%s* +get +set +eval +evalsha +info)", w.options.Address, key, err,
		w.options.Prefix+StampKey))
}

// Try asks Redis for all that a stamp needs, and changes nothing. It returns the first refusal.
func Try(ctx context.Context, c redis.Cmdable, prefix string) error {
	key := prefix + StampKey + "check:" + rand.Text()
	if err := c.Get(ctx, key).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if err := c.SetXX(ctx, key, "", 0).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return renewing.Run(ctx, c, []string{key}, "another", "server", "", "").Err()
}
