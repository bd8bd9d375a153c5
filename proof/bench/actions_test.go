package main

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

func TestWhatIsPublishedIsDoneWhenRedisHasBeenToldOfEachRow(t *testing.T) {
	ctx, rdb := t.Context(), testbed.Redis(t).Client()
	done := func(want bool) {
		t.Helper()
		got, err := goneAndPublished(ctx, rdb, goneRows, 1)
		if got != want || err != nil {
			t.Fatalf("done: %t, want %t; error %v", got, want, err)
		}
	}
	publish := func(n int) {
		t.Helper()
		if _, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range n {
				p.Publish(ctx, "gone", 1)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	done(false)
	publish(goneRows - 1)
	done(false)
	publish(1)
	done(true)
	if err := rdb.Set(ctx, fmt.Sprintf("gone:%d", goneRows), 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	done(false)
}
