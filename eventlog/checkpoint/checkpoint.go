package checkpoint

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
)

// Storage keeps a checkpoint durably. Its methods return nil when their effect is durable, are called one at a time,
// and may be called again with the same after an error.
type Storage interface {
	// WritePosition puts a position in the place of the one before.
	WritePosition(w Write) error
	// WriteMappings puts the mappings' hash in the place of the one before.
	WriteMappings(hash string) error
}

// Write is a position on its way to a [Storage].
type Write struct {
	Position event.Position
	// State says that Position.State is not what it was in the last write that succeeded. Where it is false, State
	// need not be written.
	State bool
	// Moved says that the position is not one that work has reached, see [Checkpoint.Move]: all that was kept of prepared
	// transactions is removed with the write.
	Moved bool
}

// Loaded is what a [Storage] held when it was opened.
type Loaded struct {
	// Position is the zero position on a first start.
	Position event.Position
	// Mappings is the hash of the mappings; "" if none was set.
	Mappings string
}

// Checkpoint is the position from which the source is read again after a restart: everything up to it is finished.
//
// There are two of it. The current one is in memory and moves with [Checkpoint.Advance]; the durable one follows with
// [Checkpoint.Save], so it may lag behind and is never ahead. A crash between the two makes work be done again.
//
// It implements canal's Checkpoint.
type Checkpoint struct {
	name    string
	storage Storage

	saving sync.Mutex // one write at a time

	mu       sync.Mutex
	current  event.Position
	durable  event.Position
	saved    time.Time // of the durable position, by this process
	dirty    bool
	mappings string
	// epoch is that of the last Move; 0: there was none. Ends of earlier ones add nothing to the position.
	epoch uint32
	// moving: that is not durable yet. inHand: what was in hand then may not be finished yet.
	moving, inHand bool
}

// New returns a checkpoint that goes on from what its storage holds. The name says in errors where that is.
func New(name string, s Storage, l Loaded) *Checkpoint {
	return &Checkpoint{
		name: name, storage: s, current: clone(&l.Position), durable: clone(&l.Position),
		mappings: l.Mappings,
	}
}

// clone returns a position that can change without p changing. State is never written to, so it is shared.
func clone(p *event.Position) event.Position {
	c := *p
	c.GTIDs = p.GTIDs.Clone()
	return c
}

// Position returns the durable position: the zero position before [Checkpoint.Begin].
func (c *Checkpoint) Position() event.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clone(&c.durable)
}

// Durable is [Checkpoint.Position], for who compares it with [Checkpoint.Current].
func (c *Checkpoint) Durable() event.Position { return c.Position() }

// Current returns the position in memory, up to which everything is finished.
func (c *Checkpoint) Current() event.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clone(&c.current)
}

// Saved returns when this process last saved a position; the zero time if it has not.
func (c *Checkpoint) Saved() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saved
}

// Begin saves the position of a first start, or says the same place of the same server in another way, by GTID or by
// file. To begin anywhere else while there is a position is an error.
func (c *Checkpoint) Begin(p event.Position) error {
	c.mu.Lock()
	// A Begin that failed may have taken effect all the same. Nothing was read since, so the next one may replace it.
	elsewhere := !samePlace(&c.durable, &p)
	c.mu.Unlock()
	if elsewhere {
		return fmt.Errorf("%s: begin at %s: there is a position already", c.name, p.String())
	}
	return c.Set(p)
}

// samePlace reports whether a position is none yet, or the place of the other.
func samePlace(have, p *event.Position) bool {
	return have.IsZero() || have.String() == p.String() ||
		have.Server == p.Server && have.File == p.File && have.Pos == p.Pos
}

// Set saves a position in the place of whatever is there. It is for an operator who moves the position by hand,
// while nothing runs.
func (c *Checkpoint) Set(p event.Position) error {
	if p.IsZero() {
		return fmt.Errorf("%s: the position is empty", c.name)
	}
	c.mu.Lock()
	c.current = clone(&p)
	c.dirty = true
	c.mu.Unlock()
	return c.Save()
}

// Move saves a position from which reading goes on after a gap, durably, in the place of the one before: under a new
// epoch, and without what was kept of prepared transactions. What is in hand from before is finished later, and adds
// nothing to it. Who reads on sends an end at the place, after all of that ([event.End].Moved).
func (c *Checkpoint) Move(p event.Position) error {
	c.mu.Lock()
	if p.IsZero() || p.Epoch < c.current.Epoch {
		defer c.mu.Unlock()
		return fmt.Errorf("%s: move to %q of epoch %d: the epoch is %d", c.name, p.String(), p.Epoch, c.current.Epoch)
	}
	c.current = clone(&p)
	c.epoch, c.dirty, c.moving, c.inHand = p.Epoch, true, true, true
	c.mu.Unlock()
	return c.Save()
}

// Finished returns up to which version everything is finished, what was in hand at a [Checkpoint.Move] included; the
// zero version as long as some of that may not be.
func (c *Checkpoint) Finished() event.Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inHand {
		return event.Version{}
	}
	return event.VersionAt(c.current.Epoch, c.current.File, c.current.Pos)
}

// Raise saves a new identity of the source and a new epoch: see [event.Position.Raise]. The position stays. An epoch
// never falls.
func (c *Checkpoint) Raise(server string, epoch uint32) error {
	c.mu.Lock()
	if epoch < c.current.Epoch {
		defer c.mu.Unlock()
		return fmt.Errorf("%s: epoch %d: it is %d already", c.name, epoch, c.current.Epoch)
	}
	c.current.Raise(server, epoch)
	c.dirty = true
	c.mu.Unlock()
	return c.Save()
}

// Advance moves the current position over what has been finished. It is cheap and writes nothing. Ends must come in
// order; one that comes again, because the source was read again, moves nothing back.
func (c *Checkpoint) Advance(e event.End) {
	if e.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Epoch < c.epoch {
		return
	}
	c.inHand = false
	// With GTIDs the set is the position, and it only grows. Without, file and position are all there is.
	if len(e.GTIDs) == 0 && c.current.GTIDs.IsEmpty() && before(e.File, e.Pos, c.current.File, c.current.Pos) {
		return
	}
	c.current.Advance(e)
	c.dirty = true
}

// before reports whether a place in the binlog is surely before another of the same server.
func before(file string, pos uint64, thanFile string, thanPos uint64) bool {
	if file == thanFile {
		return pos < thanPos
	}
	base, n, err := event.SplitFile(file)
	thanBase, than, thanErr := event.SplitFile(thanFile)
	return err == nil && thanErr == nil && base == thanBase && n < than
}

// Save makes the current position durable. It does nothing when nothing has changed. After an error the durable
// position is either the old or the new one.
func (c *Checkpoint) Save() error {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.mu.Lock()
	if !c.dirty {
		c.mu.Unlock()
		return nil
	}
	p := clone(&c.current)
	stale := !bytes.Equal(p.State, c.durable.State) || (p.State == nil) != (c.durable.State == nil)
	moved := c.moving
	c.dirty, c.moving = false, false
	c.mu.Unlock()

	err := c.storage.WritePosition(Write{Position: p, State: stale, Moved: moved})

	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.dirty, c.moving = true, c.moving || moved
		return err
	}
	c.durable, c.saved = p, time.Now()
	return nil
}

// Passed reports whether a position surely holds an end. In doubt it says no.
func Passed(p *event.Position, e *event.End) bool {
	if len(e.GTIDs) == 0 {
		return e.File == p.File && e.Pos <= p.Pos || before(e.File, e.Pos, p.File, p.Pos)
	}
	for _, r := range e.GTIDs {
		last := r.First
		last.Number = r.Last
		if !p.GTIDs.Contains(last) {
			return false
		}
	}
	return true
}

// Mappings returns the hash of the mappings that the work up to the position was routed by; "" if none was set.
func (c *Checkpoint) Mappings() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mappings
}

// SetMappings saves the hash of the mappings.
func (c *Checkpoint) SetMappings(hash string) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	if err := c.storage.WriteMappings(hash); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mappings = hash
	return nil
}
