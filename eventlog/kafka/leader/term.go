package leader

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// How a term is taken: compare and append.
//
// A claimant reads the topic to its end E, chooses a term T that is higher than any that it has seen, and appends a
// claim (T, E, the position that it found). The brokers give the claim an offset. The term is taken if that offset is
// E: then nothing was appended between what the claimant has read and its claim. A later reader of the topic can tell
// the same from the record alone, since the claim names E.
//
// At most one takes each term. Let A and B claim the same T, and A's claim have the lower offset. B reads to its end F
// and claims at an offset G after A's.
//
//	F is behind A's claim: B has seen T in it, and chooses a higher term. A contradiction.
//	F is not behind A's claim: A's claim, at F or behind, is before G, so G ≠ F and B does not take T.
//
// So it does not matter in which order A and B read and claim, nor whether A has taken T itself; in particular
//
//	A reads, B reads, A claims (at E: takes T), B claims (at E+1: does not)
//	A reads, C writes, A claims (at E+1: does not take T), B reads, B claims T+1
//
// T is the time, in milliseconds, or one more than the highest term that was seen if that is higher. Counted from 1, a
// source that was removed, with its mark and its checkpoint topic, and comes back under its name would begin below what
// running invalidators, and the groups' commits, remember of its earlier life: they would take its records for
// leftovers of an old leader, and its marks for old ones.
//
// Both read the topic to an end that the brokers gave; records that were appended and are not replicated yet lie behind
// that end, and make the claim's offset another one. Offsets are given once: compaction removes records but never
// moves one, and a leader of the partition that lacks acknowledged records is never elected (the topic's
// unclean.leader.election.enable is false; the claim itself is acknowledged by all in-sync replicas).
//
// Compaction may have removed a claim before B reads it only in favour of a later record of the same key, which has
// the same term in the key itself, or of a tombstone. A tombstone is written by a leader of a higher term, after its
// own claim; B meets that claim, or what has replaced it, and with it a term higher than T. (A tombstone itself is kept
// for delete.retention.ms, a day; reading takes seconds.)
//
// What a claim whose reply is lost means: nothing is known, so the claimant tries again under a new random writer, and
// a higher term if it meets its old claim. That one may have taken its term, with nobody to lead in it. It carries the
// position that was in force, so going on from it is right.
//
// What it means for the leader before, of term S < T, which may still be writing: what it appends before the claim has
// been read by the claimant, since nothing is between. What it appends after the claim has the lower term, and is
// never looked at for a position again, for the claim carries one. So a position of S that counts is one that its
// successor has gone on from, and S may let go of what lies behind such a position (see [reign.WritePosition]) whenever
// it gets to it.

// claimed is a term that was taken.
type claimed struct {
	*snapshot
	position
}

// take makes one attempt after the other to take a term until one succeeds, fails, or ctx ends.
func (t topic) take(ctx context.Context) (*claimed, error) {
	pause := retry.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		c, err := t.claim(ctx)
		if c != nil || err != nil {
			return c, err
		}
		// Somebody else wrote meanwhile.
		if err := pause.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// claim makes one attempt. It returns nil and no error if it came to nothing.
func (t topic) claim(ctx context.Context) (*claimed, error) {
	s, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.newest()
	if err != nil {
		return nil, err
	}
	return s.claim(ctx, p)
}

// claimOf returns the claim of the next term with a position.
func (s *snapshot) claimOf(p position) position {
	now := time.Now().UTC()
	p.Format, p.Source, p.Writer = format, s.source, nonce()
	least := uint64(max(now.UnixMilli(), 0))
	if s.least != nil {
		least = s.least()
	}
	p.Term = max(s.term+1, least)
	p.Claim, p.At, p.After, p.Seq, p.Saved = true, s.next, 0, 0, now
	return p
}

// claim makes one attempt to take the next term with a position.
func (s *snapshot) claim(ctx context.Context, p position) (*claimed, error) {
	p = s.claimOf(p)
	value, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	offset, err := s.client.Produce(ctx, s.name(), 0, broker.Record{Key: []byte(p.key()), Value: value})
	if err != nil {
		return nil, fmt.Errorf("take term %d: %w", p.Term, err)
	}
	if offset != s.next {
		return nil, nil
	}
	s.next++
	return &claimed{s, p}, nil
}

// nonce returns a random word of 16 letters.
func nonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
