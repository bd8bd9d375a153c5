package docs

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fwrite "github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
)

// The code of queries.md, from the first comment to the end of fill.

// lockName is the name of the key's lock.
func lockName(prefix, key string) string {
	full := prefix + key
	if i := strings.IndexByte(full, '{'); i >= 0 && strings.IndexByte(full[i+1:], '}') > 0 {
		return prefix + "freshet:lock::" + key // in the slot of the key's own hash tag
	}
	return prefix + "freshet:lock:{" + full + "}"
}

var release = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// fill returns the value of a key; load reads it from the database if it is not cached.
func fill(ctx context.Context, rdb redis.UniversalClient, prefix, key string,
	load func(context.Context) (string, error),
) (string, error) {
	name, token := lockName(prefix, key), rand.Text()
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		value, err := rdb.Get(ctx, prefix+key).Result()
		if err != redis.Nil {
			return value, err
		}
		err = rdb.Do(ctx, "SET", name, token, "NX", "PX", 5000).Err()
		if err == nil || wait > time.Second {
			break // it is ours; or it is not, and nobody waits forever
		}
		if err != redis.Nil {
			return "", err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	defer release.Run(context.WithoutCancel(ctx), rdb, []string{name}, token)
	value, err := load(ctx)
	if err != nil {
		return "", err
	}
	return value, rdb.Set(ctx, prefix+key, value, time.Hour).Err()
}

func TestTheLockOnThePageIsFreshets(t *testing.T) {
	source, err := os.ReadFile("queries_test.go")
	testbed.Must(t, err)
	_, code, _ := strings.Cut(string(source), "to the end of fill.\n\n")
	code, _, _ = strings.Cut(code, "\nfunc Test")
	if page := files(t, ".md")["docs/queries.md"]; len(code) < 500 || !strings.Contains(page, code) {
		t.Error("the code on the page is not the code that is tested here")
	}
	for _, prefix := range []string{"", "app:", "{app}:"} {
		for _, key := range []string{"product:17", "{user:7}:cart", "a{b", "{}x", "", "ü{1}{2}"} {
			full := prefix + key
			if full == "" || strings.Contains(key, "}") && !strings.Contains(full, "r:7}") && !strings.Contains(full, "{1}") &&
				prefix != "{app}:" {
				continue // odd, as the page says
			}
			if got, want := lockName(prefix, key), (fwrite.Names{Prefix: prefix}).Lock(key); got != want {
				t.Errorf("the lock of %q behind %q: the page has %s, freshet %s", key, prefix, got, want)
			}
		}
	}
}

func TestTheFillOnThePageSharesTheLock(t *testing.T) {
	server := testbed.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer rdb.Close()
	ctx := t.Context()
	const prefix, key = "app:", "product:17"
	name := (fwrite.Names{Prefix: prefix}).Lock(key)

	// While somebody else holds it, nothing is loaded: what the other one writes is taken.
	testbed.Must(t, rdb.Set(ctx, name, "freshet", 0).Err())
	got := make(chan string)
	go func() {
		value, err := fill(ctx, rdb, prefix, key,
			func(context.Context) (string, error) { return "", errors.New("loaded past the lock") })
		if err != nil {
			value = err.Error()
		}
		got <- value
	}()
	// ours, and the one that did not get the lock
	for !strings.Contains(rdb.Info(ctx, "commandstats").Val(), "cmdstat_set:calls=2") {
	}
	testbed.Must(t, rdb.Set(ctx, prefix+key, "freshet's", 0).Err())
	if value := <-got; value != "freshet's" {
		t.Errorf("%s", value)
	}
	if token := rdb.Get(ctx, name).Val(); token != "freshet" {
		t.Errorf("the lock of somebody else was taken away: %q", token)
	}

	// Alone it loads under the lock, and gives it back.
	testbed.Must(t, rdb.Del(ctx, name, prefix+key).Err())
	value, err := fill(ctx, rdb, prefix, key, func(context.Context) (string, error) {
		if rdb.Exists(ctx, name).Val() != 1 || rdb.PTTL(ctx, name).Val() <= 0 {
			return "", errors.New("it is loaded without the lock")
		}
		return "the application's", nil
	})
	if err != nil || value != "the application's" || rdb.Get(ctx, prefix+key).Val() != value ||
		rdb.Exists(ctx, name).Val() != 0 {
		t.Errorf("%q %v, cached %q, %d locks left", value, err, rdb.Get(ctx, prefix+key).Val(), rdb.Exists(ctx, name).Val())
	}
}
