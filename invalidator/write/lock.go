package write

import (
	"strconv"
	"time"
)

// DefaultLockTTL is how long a lock is held without being renewed.
const DefaultLockTTL = 5 * time.Second

// Lock is a short lock in Redis under which a key is rebuilt by query, so that the database is asked once and not by
// everybody. It is relief for the database, not a safety measure: what is written is guarded by version. Application
// code in any language may share it:
//
//	take     SET freshet:lock:{KEY} TOKEN NX PX 5000      nil: somebody else has it
//	renew    if GET = TOKEN then PEXPIRE 5000             in one script, at a third of its time
//	release  if GET = TOKEN then DEL                      in one script
//
// with a random token for each taking, and the name as [Names] makes it.
type Lock struct {
	// Name is the lock's key in Redis.
	Name string
	// Token is the owner's own.
	Token string
	// TTL is how long it is held from the last taking or renewal.
	TTL time.Duration
}

// Lock returns the lock of a key, with a token of its own. ttl 0 is [DefaultLockTTL].
func (b *Builder) Lock(key string, ttl time.Duration) Lock {
	if ttl <= 0 {
		ttl = DefaultLockTTL
	}
	token := strconv.FormatUint(b.random(), 36) + strconv.FormatUint(b.random(), 36)
	return Lock{Name: b.names.Lock(key), Token: token, TTL: ttl}
}

// Acquire returns the call that takes the lock. It may be sent again when its reply was lost.
func (b *Builder) Acquire(l Lock) *Call { return b.lockCall(theScripts.acquire, l, true) }

// Renew returns the call that holds the lock for another TTL.
func (b *Builder) Renew(l Lock) *Call { return b.lockCall(theScripts.renew, l, true) }

// Release returns the call that gives the lock back.
func (b *Builder) Release(l Lock) *Call { return b.lockCall(theScripts.release, l, false) }

// Held tells from the answered call of Acquire, Renew or Release whether the lock was the caller's.
func Held(c *Call) (bool, error) {
	if c.Err != nil {
		return false, c.Err
	}
	n, _ := c.Reply.(int64)
	return n == 1, nil
}

func (b *Builder) lockCall(s *Script, l Lock, ttl bool) *Call {
	c := b.script(s, l.Name, 2)
	c.add(l.Token)
	if ttl {
		c.add(b.millis(l.TTL))
	}
	return c
}
