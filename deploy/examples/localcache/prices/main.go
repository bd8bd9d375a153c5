// Command prices serves GET /price/17 from its memory, else from Redis, else from the database, and is kept fresh by
// freshet: the mapping of example.price has keys ["price:{id}"] and stream: {key: price-changes}.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/deploy/examples/localcache"
)

const (
	// fillWithin is for how long a fill may take from before the database is read until Redis has it: freshet's
	// second_delete (2s), less a margin.
	fillWithin = 1500 * time.Millisecond
	keepFor    = 10 * time.Minute
	lease      = 5 * time.Second
	limit      = 10_000
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where to serve")
	redisAddr := flag.String("redis", "127.0.0.1:6379", "Redis")
	dsn := flag.String("mysql", "freshet:freshet@tcp(127.0.0.1:3306)/example", "the database")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, *listen, *redisAddr, *dsn); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, listen, redisAddr, dsn string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	// A fill that is tried again by the client takes effect later than fillWithin says: no retries, and deadlines
	// count.
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	s := shop{db, rdb}
	cache := localcache.New(limit, lease, s.read)
	follower := localcache.Follower{Redis: rdb, Stream: "price-changes", Handler: cache}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /price/{id}", func(w http.ResponseWriter, r *http.Request) {
		price, held, err := cache.Get(r.Context(), "price:"+r.PathValue("id"))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			http.NotFound(w, r)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadGateway)
		default:
			w.Header().Set("X-From-Memory", fmt.Sprint(held))
			fmt.Fprintln(w, price)
		}
	})
	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var all sync.WaitGroup
	all.Go(func() { follower.Run(ctx, func(err error) { log.Print(err) }) })
	all.Go(func() { <-ctx.Done(); _ = server.Shutdown(context.WithoutCancel(ctx)) })
	err = server.ListenAndServe()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	stop()
	all.Wait()
	return err
}

type shop struct {
	db  *sql.DB
	rdb *redis.Client
}

// read reads a price from Redis, or reads it from the database and fills Redis. A fill that comes too late is not made.
func (s shop) read(ctx context.Context, key string) (string, error) {
	price, err := s.rdb.Get(ctx, key).Result()
	if err == nil {
		return price, nil
	}
	if !errors.Is(err, redis.Nil) {
		log.Printf("redis: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fillWithin)
	defer cancel()
	err = s.db.QueryRowContext(ctx, "SELECT amount FROM price WHERE id = ?",
		strings.TrimPrefix(key, "price:")).Scan(&price)
	if err != nil {
		return "", err
	}
	if err := s.rdb.Set(ctx, key, price, keepFor).Err(); err != nil {
		log.Printf("redis: %v", err)
	}
	return price, nil
}
