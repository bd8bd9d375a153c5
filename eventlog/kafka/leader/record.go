package leader

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/stash"
)

// format is the version of the documents in the checkpoint topic.
const format = 1

// maxRecord is the size that a record stays below, in bytes: half of the brokers' default message.max.bytes, so that
// a batch of one always fits.
const maxRecord = 512 << 10

// The kinds of records. A key is kind/term/writer/…, so that who reads it knows at once whose it is:
//
//	position/7/5be2…/0        one of the few newest positions of that leader, and its claim
//	state/7/5be2…/3/1         chunk 1 of the third State that this leader wrote
//	xa/7/5be2…/12/4           chunk 4 of the keys of the twelfth prepared transaction that it read
const (
	kindPosition = "position"
	kindState    = "state"
	kindXA       = "xa"
)

// slots is over how many keys the positions of one leader are spread, see [reign.put].
const slots = 4

// owner is the leadership that wrote a record: a term, and a random word that tells claimants of the same term apart.
type owner struct {
	term   uint64
	writer string
}

// key returns the key of a record of this owner.
func (o owner) key(kind string, rest ...uint64) string {
	b := append([]byte(kind), '/')
	b = strconv.AppendUint(b, o.term, 10)
	b = append(b, '/')
	b = append(b, o.writer...)
	for _, n := range rest {
		b = append(b, '/')
		b = strconv.AppendUint(b, n, 10)
	}
	return string(b)
}

// parseKey takes a key apart; false for one of a kind that is not known.
func parseKey(key string) (kind string, o owner, ok bool) {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) != 4 {
		return "", owner{}, false
	}
	term, err := strconv.ParseUint(parts[1], 10, 64)
	switch parts[0] {
	case kindPosition, kindState, kindXA:
		return parts[0], owner{term, parts[2]}, err == nil
	}
	return "", owner{}, false
}

// chunkOf takes the key of a chunk apart into the name of what it is a chunk of, and its number, from 1.
func chunkOf(key string) (name string, n uint64, ok bool) {
	i := strings.LastIndexByte(key, '/')
	n, err := strconv.ParseUint(key[i+1:], 10, 64)
	return key[:max(i, 0)], n, err == nil && n > 0 && i > 0
}

func chunkKey(name string, n int) string { return name + "/" + strconv.Itoa(n) }

// position is a record of a position, or of the claim of a term.
type position struct {
	Format int    `json:"format"`
	Source string `json:"source"`
	Term   uint64 `json:"term"`
	Writer string `json:"writer"`
	// Claim says that this is the claim of the term, with the position that was found. It took the term if At is the
	// offset that it has.
	Claim bool  `json:"claim"`
	At    int64 `json:"at,omitempty"`
	// After is what the offset of a position cannot be below, since its leader knew of all offsets before. A position
	// with a lower one was written to another topic of the same name, or to one that was cut short: it does not count.
	After int64 `json:"after,omitempty"`
	// Seq counts the leader's attempts to save, from 1; 0 is its claim.
	Seq uint64 `json:"seq"`
	checkpoint.PositionJSON
	State    *stateRef             `json:"state,omitempty"`
	Mappings string                `json:"mappings,omitempty"`
	Heads    map[int]event.Version `json:"heads,omitempty"`
	// Gone names the prepared transactions whose outcome is before the position. Their tombstones come after it, so that
	// some may be missing if the leader was killed in between.
	Gone  []string  `json:"gone,omitempty"`
	Saved time.Time `json:"saved"`
}

// stateRef says where the State of a position is.
type stateRef struct {
	Name   string `json:"name"`
	Chunks int    `json:"chunks"`
	Bytes  int    `json:"bytes"`
}

func (p *position) owner() owner { return owner{p.Term, p.Writer} }

func (p *position) key() string { return p.owner().key(kindPosition, p.Seq%slots) }

// heads returns a copy of the chain heads, to be added to.
func (p *position) heads() map[int]event.Version {
	out := make(map[int]event.Version, len(p.Heads))
	maps.Copy(out, p.Heads)
	return out
}

// stateChunk is a part of a State.
type stateChunk struct {
	Format int             `json:"format"`
	Text   checkpoint.Text `json:"text"`
}

// xaChunk is a part of the keys of a prepared transaction. The head says which; it can be read without the keys.
type xaChunk struct {
	xaHead
	Keys stash.Keys `json:"keys"`
}

type xaHead struct {
	Format int             `json:"format"`
	Source string          `json:"source"`
	XID    checkpoint.Text `json:"xid"`
	First  event.Version   `json:"first"`
	Since  time.Time       `json:"since"`
	Count  int             `json:"count"`
}

// check refuses a document that is another source's, or of a format that this version does not know.
func check(source string, f int, of string) error {
	switch {
	case f > format:
		return fmt.Errorf("%w: format %d, this one knows %d", ErrNewer, f, format)
	case f < 1:
		return fmt.Errorf("%w: a document without a format", errDamaged)
	case of != source:
		return fmt.Errorf("%w: a record of the source %q", errDamaged, of)
	}
	return nil
}

// read reads a document.
func read(value []byte, v any) error {
	if err := json.Unmarshal(value, v); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}
