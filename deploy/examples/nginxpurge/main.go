// Command nginxpurge removes pages from the cache of an nginx when freshet says that their rows changed. It runs next
// to nginx, as the same user, and reads a freshet stream: docs/local-caches.md tells the whole, nginx.conf is nginx'
// side.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"regexp"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/deploy/examples/localcache"
)

func main() {
	dir := flag.String("cache", "/var/cache/nginx/pages", "nginx' proxy_cache_path, with levels=1:2")
	state := flag.String("state", "/var/lib/nginxpurge/last", "where the id of the last entry is kept")
	redisAddr := flag.String("redis", "127.0.0.1:6379", "Redis")
	stream := flag.String("stream", "price-changes", "the stream that freshet adds to")
	key := flag.String("key", "^price:([0-9]+)$", "the keys that have a page")
	page := flag.String("page", "/price/$1", "the page of such a key, as proxy_cache_key has it")
	flag.Parse()

	pattern, err := regexp.Compile(*key)
	if err != nil {
		log.Fatalf("-key: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, fail := context.WithCancelCause(ctx)
	rdb := redis.NewClient(&redis.Options{Addr: *redisAddr, MaxRetries: -1})
	p := &purger{dir: *dir, key: pattern, page: *page, state: *state, failed: fail}
	f := &localcache.Follower{Redis: rdb, Stream: *stream, Last: p.last(), Handler: p}
	p.follower = f
	f.Run(ctx, func(err error) { log.Print(err) })
	err = rdb.Close()
	stop()
	if p.broken {
		log.Fatal(context.Cause(ctx))
	}
	if err != nil {
		log.Fatal(err)
	}
}
