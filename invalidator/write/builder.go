package write

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
)

// The sizes of what is written. A script blocks Redis while it runs; see the package's documentation for the times.
const (
	// inlineFields and inlineBytes are what a hash may have for being written by one script.
	inlineFields = 256
	inlineBytes  = 64 << 10
	// stageTTL is how long a hash that is being put together is kept, should nobody finish it.
	stageTTL = time.Minute
	// leastTTL is how long a companion is kept, at least; foreverTTL if its key lives forever.
	leastTTL   = time.Hour
	foreverTTL = 24 * time.Hour
	// DefaultEntries is how many fields or members a generation of a companion holds. Two are kept.
	DefaultEntries = 4096
)

// Options of a [Builder].
type Options struct {
	Names Names
	// Random draws jitter and names of temporary keys. Default: math/rand/v2's Uint64.
	Random func() uint64
	// Entries bounds a generation of the companion of a hash or set. Default [DefaultEntries].
	Entries int
}

// Builder makes calls of items, in memory that it uses again. It belongs to one goroutine.
type Builder struct {
	memory

	names   Names
	random  func() uint64
	entries string
}

// New returns a builder.
func New(o Options) (*Builder, error) {
	if o.Random == nil {
		o.Random = rand.Uint64
	}
	if o.Entries == 0 {
		o.Entries = DefaultEntries
	}
	if o.Entries < 0 {
		return nil, fmt.Errorf("a companion of %d entries: want at least 1", o.Entries)
	}
	return &Builder{names: o.Names, random: o.Random, entries: strconv.Itoa(o.Entries)}, nil
}

// Reset takes back all calls that the builder has made, and their memory.
func (b *Builder) Reset() { b.reset() }

// Append appends the calls of an item, at least one. They go down one connection in this order; to send all of them
// again is harmless, to send a part of them again is not. The item's key and fields must not change until
// [Builder.Reset].
//
// What cannot be made out (damaged fields, a put without an Effect) is forgotten.
//
// So is a key with a name of freshet's own: a column has made it, and what is written there would count as freshet's.
func (b *Builder) Append(calls []*Call, it *Item) []*Call {
	if strings.HasPrefix(it.Key, reserved) {
		return append(calls, b.unlink(it))
	}
	switch it.Action {
	case event.ActionRebuild:
		return b.appendRebuild(calls, it)
	case event.ActionHash:
		return append(calls, b.field(it))
	case event.ActionSet, event.ActionZSet:
		return append(calls, b.member(it))
	case event.ActionExpire:
		if it.Effect == nil {
			break
		}
		c := b.script(theScripts.expire, b.key(it), 1)
		c.add(b.millis(it.Effect.In))
		return append(calls, c)
	case event.ActionIncr:
		return append(calls, b.script(theScripts.incr, b.key(it), 0))
	}
	return append(calls, b.unlink(it))
}

// unlink returns the call of a plain delete.
func (b *Builder) unlink(it *Item) *Call {
	c := b.call(2)
	c.add("unlink", b.key(it))
	c.keys = 1
	return c
}

// Mark returns calls that remove the key of an item whose own calls are refused, and leave its companion at the item's
// version, not confirming. Without D a key of which nothing is known is written at once. So if the companion went, an
// older change that is on its way would be, perhaps after a newer one whose companion that was: Redis may hang before
// it gets to this. The mark is begun at a time that is still to come, which the script takes for the time at which it
// meets the mark.
func (b *Builder) Mark(calls []*Call, it *Item) []*Call {
	mark := b.call(5)
	mark.add("set", b.name(KindVersion, it), b.ordered(it.Version)+" "+toCome+" "+it.Source, "PX", b.millis(foreverTTL))
	mark.keys = 1
	return append(calls, mark, b.unlink(it))
}

// toCome is a time, in ms, that Redis' clock does not reach, and that Lua's numbers hold.
const toCome = "9000000000000000"

// Fallback returns a call that removes the key of an item, with all that is known of it: for when its own calls are
// refused. It takes the companions along, since those would go on to confirm older values.
func (b *Builder) Fallback(it *Item) *Call {
	c := b.call(7)
	c.add("unlink", b.key(it))
	for _, k := range [...]Kind{KindVersion, KindField, KindOldField, KindMember, KindOldMember} {
		c.add(b.name(k, it))
	}
	return c
}

// The replies of the scripts.
const (
	replyOlder = iota
	replyWritten
	replyRemoved
	replyForgotten
	replyAbsent
)

// Outcome tells what the calls that [Builder.Append] made of the item did, or the first of their errors.
func (b *Builder) Outcome(it *Item, calls []*Call) (Outcome, error) {
	if len(calls) == 0 {
		return 0, errors.New("redis: no call was made")
	}
	for _, c := range calls {
		if c.Err != nil {
			return 0, fmt.Errorf("redis: %s: %w", c.Name(), c.Err)
		}
	}
	c := calls[len(calls)-1]
	n, ok := c.Reply.(int64)
	if !ok {
		return 0, fmt.Errorf("redis: %s: unexpected reply %T", c.Name(), c.Reply)
	}
	if c.Script == nil { // UNLINK and HDEL
		if n == 0 {
			return Absent, nil
		}
		return Removed, nil
	}
	switch n {
	case replyOlder:
		return Older, nil
	case replyWritten:
		return Written, nil
	case replyRemoved:
		return Removed, nil
	case replyForgotten:
		return Forgotten, nil
	case replyAbsent:
		return Absent, nil
	}
	if begun(c) > 0 {
		return Forgotten, nil
	}
	return 0, fmt.Errorf("redis: %s: unexpected reply %d", c.Name(), n)
}

// Begun returns when the mark was begun that the calls of an item left for it, by Redis' clock in ms: the key was
// removed, and the mark confirms nothing yet. 0: they left no such mark, or have no answer.
func (b *Builder) Begun(calls []*Call) int64 { return begun(calls[len(calls)-1]) }

// begun is what the scripts of the guard reply instead of replyForgotten where they leave such a mark: a time, which is
// far above all other replies.
func begun(c *Call) int64 {
	if n, ok := c.Reply.(int64); ok && n > leastTime && c.Script != nil && c.Err == nil {
		return n
	}
	return 0
}

// leastTime is below every time in ms, and above every other reply.
const leastTime = 1000

// script returns a call of a script on the key and what belongs to it.
func (b *Builder) script(s *Script, key string, args int, more ...string) *Call {
	c := b.call(4 + len(more) + args)
	c.Script = s
	c.add("evalsha", s.SHA, digits[1+len(more)], key)
	c.add(more...)
	return c
}

var digits = [...]string{"0", "1", "2", "3"}

// guarded adds what all scripts with a guard take for all keys of a call, and the version with which begins what they
// take for each. ttl is the longest that the value may live, and more what the script has for itself.
func (b *Builder) guarded(c *Call, op string, it *Item, ttl time.Duration, more string) {
	c.keys = len(c.words) - beforeKeys
	until, begun := it.Until-it.Until%roundUntil, it.Begun
	if op == opForget || op == opYield || op == opPurge {
		until, begun = 0, 0 // nothing of it is asked for
	}
	c.add(op, it.Source, b.millis(ConfirmsAfter(it.D)))
	if it.D == 0 && !it.Refused {
		c.add("1")
	} else {
		c.add(b.number(begun))
	}
	keep := foreverTTL
	if ttl > 0 {
		keep = max(leastTTL, ttl)
	}
	c.add(b.millis(max(keep, ttl+2*it.D+finalSlack)), b.number(until), more, b.ordered(it.Version))
}

const (
	// finalSlack is how much longer than its value, and D twice, a companion is kept, so that the final action finds
	// what the first one has begun: it follows D after its change became known to be visible, and that takes a while.
	finalSlack = time.Minute
	// roundUntil is to how many ms [Item].Until is rounded down. Changes that became visible shortly after one another
	// have the same then, and can share a call.
	roundUntil = 100
	// beforeKeys are the words of a call before its keys, guardArgs what follows these up to the version.
	beforeKeys = 3
	guardArgs  = 7
)

// opForget is the forgetting of all scripts with a guard. opYield and opPurge leave the version that the guard has; and
// opYield leaves what the guard knows to be newer.
const (
	opForget = "forget"
	opYield  = "yield"
	opPurge  = "purge"
)

// forgetting is how the item forgets.
func (it *Item) forgetting() string {
	switch {
	case it.Leftover:
		return opYield
	case it.Named:
		return opPurge
	}
	return opForget
}

func (b *Builder) key(it *Item) string {
	if b.names.Prefix == "" {
		return it.Key
	}
	m := b.mark()
	b.buf = append(append(b.buf, b.names.Prefix...), it.Key...)
	return b.since(m)
}

func (b *Builder) name(k Kind, it *Item) string {
	m := b.mark()
	b.buf = b.names.Append(b.buf, k, it.Key)
	return b.since(m)
}

func (b *Builder) number(n int64) string {
	m := b.mark()
	b.buf = strconv.AppendInt(b.buf, n, 10)
	return b.since(m)
}

// millis is a duration for Redis: whole milliseconds, at least one if there is any.
func (b *Builder) millis(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	return b.number(max(1, d.Milliseconds()))
}

// ordered is a version for the guard: of two the newer one is the larger as text. Before each number stands how many
// digits it has: less one in one digit, and in two for the position, which may have 20.
func (b *Builder) ordered(v event.Version) string {
	m := b.mark()
	b.counted(uint64(v.Epoch), 1)
	b.counted(uint64(v.File), 1)
	b.counted(v.Pos, 2)
	b.counted(uint64(v.Row), 1)
	return b.since(m)
}

// counted appends a number after how many digits it has, less one, in so many digits.
func (b *Builder) counted(n uint64, digits int) {
	m := len(b.buf)
	b.buf = append(b.buf, "00"[:digits]...)
	b.buf = strconv.AppendUint(b.buf, n, 10)
	more := len(b.buf) - m - digits - 1
	b.buf[m+digits-1] += byte(more % 10)
	if digits > 1 {
		b.buf[m] += byte(more / 10)
	}
}

// lives says how long a value lives: for the time ttl, or if there is jitter up to the time most, and each draws its
// own. 0: forever.
type lives struct {
	ttl, most time.Duration
}

// lives draws how long a value of an effect lives.
func (b *Builder) lives(e *event.Effect) lives {
	if e.TTL <= 0 || e.Jitter <= 0 {
		return lives{ttl: max(0, e.TTL), most: max(0, e.TTL)}
	}
	share := float64(b.random()>>11) / (1 << 52) // 0 to 2
	off := min(1, e.Jitter) * float64(e.TTL)
	return lives{max(time.Millisecond, e.TTL+time.Duration((share-1)*off)), e.TTL + time.Duration(off)}
}

// isOwn says that the value may live for another time than others of its effect.
func (l lives) isOwn() bool { return l.ttl != l.most }
