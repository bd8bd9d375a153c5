package localcache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Handler takes what a [Follower] reads, by one goroutine.
type Handler interface {
	// Changed says that a key was deleted or written again; key is as it is in Redis.
	Changed(key string)
	// Lost says that entries may have been missed: anything may have changed.
	Lost()
	// Current says that every entry that was in the stream at this moment has been told.
	Current(asOf time.Time)
}

// Follower follows a stream that freshet adds to. Entries are read by their ids and not through a consumer group, since
// each follower must see all of them.
type Follower struct {
	// Redis is where the stream is: its primary.
	Redis *redis.Client
	// Stream is its key, redis.key_prefix included.
	Stream string
	// Last is the id of the last entry that was told; empty: begin with what comes from now on.
	Last string
	// Handler is told.
	Handler Handler
}

const (
	// wait is how long Redis waits for an entry before it answers that there is none.
	wait = time.Second
	// pause is the time between two attempts while Redis is away.
	pause = 200 * time.Millisecond
	// most is how many entries are read at once.
	most = 1000
	// nothing is the id before the first.
	nothing = "0-0"
)

// Run follows the stream until ctx ends. While Redis is away it tries again forever, and goes on where it was.
func (f *Follower) Run(ctx context.Context, failed func(error)) {
	for ctx.Err() == nil {
		if err := f.read(ctx); err != nil && ctx.Err() == nil {
			failed(fmt.Errorf("follow the stream %s: %w", f.Stream, err))
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

// read reads what comes next and tells it.
func (f *Follower) read(ctx context.Context) error {
	if f.Last == "" {
		return f.begin(ctx)
	}
	asOf := time.Now()
	answer, err := f.Redis.XRead(ctx,
		&redis.XReadArgs{Streams: []string{f.Stream, f.Last}, Count: most, Block: wait}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	// Only now: an entry that is trimmed after it was read does no harm, one that was trimmed before is missing.
	oldest, newest, err := f.ends(ctx)
	if err != nil {
		return err
	}
	if f.missed(oldest, newest) {
		f.Handler.Lost()
		f.Last = newest
		return nil
	}
	n := 0
	for _, stream := range answer {
		for _, entry := range stream.Messages {
			if key, ok := entry.Values["key"].(string); ok {
				f.Handler.Changed(key)
			}
			f.Last = entry.ID
			n++
		}
	}
	if n < most {
		f.Handler.Current(asOf)
	}
	return nil
}

// begin begins with what comes from now on. What was read before is not known to be new: its entry may be among those
// that are not read.
func (f *Follower) begin(ctx context.Context) error {
	_, newest, err := f.ends(ctx)
	if err != nil {
		return err
	}
	f.Handler.Lost()
	f.Last = newest
	return nil
}

// ends returns the ids of the first and the last entry; [nothing] where there is none.
func (f *Follower) ends(ctx context.Context) (oldest, newest string, err error) {
	pipe := f.Redis.Pipeline()
	first := pipe.XRangeN(ctx, f.Stream, "-", "+", 1)
	last := pipe.XRevRangeN(ctx, f.Stream, "+", "-", 1)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", "", err
	}
	id := func(entries []redis.XMessage) string {
		if len(entries) == 0 {
			return nothing
		}
		return entries[0].ID
	}
	return id(first.Val()), id(last.Val()), nil
}

// missed reports whether entries may have come and gone since the last one that was told: the last one is no longer
// there, or the stream ends before it, because Redis came back older than it was, or empty.
func (f *Follower) missed(oldest, newest string) bool {
	return before(f.Last, oldest) || before(newest, f.Last)
}

// before compares two ids, milliseconds-sequence.
func before(a, b string) bool {
	ams, aseq := split(a)
	bms, bseq := split(b)
	return ams < bms || ams == bms && aseq < bseq
}

func split(id string) (ms, seq uint64) {
	a, b, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(a, 10, 64)
	seq, _ = strconv.ParseUint(b, 10, 64)
	return ms, seq
}
