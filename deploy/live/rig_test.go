package live

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// patience is how long a test waits for what should happen at once. It is no measure of speed: the machine is busy.
const patience = 60 * time.Second

// shop is a database with a cache, which freshets keep fresh.
type shop struct {
	t      *testing.T
	source *testbed.Server
	redis  *testbed.RedisServer
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, source: testbed.MySQL(t), redis: testbed.Redis(t)}
	s.source.Exec(t, "CREATE DATABASE shop",
		"CREATE TABLE shop.product (id INT PRIMARY KEY, category_id INT NOT NULL, price INT NOT NULL)",
		"CREATE TABLE shop.note (id INT PRIMARY KEY, text VARCHAR(50))")
	return s
}

// freshet is a running freshet.
type freshet struct {
	*testbed.Running
	t      *testing.T
	listen string // its admin listener
}

func (f *freshet) url() string { return "http://" + f.listen }

// start starts a command with the sections of its configuration.
func (s *shop) start(command string, sections ...string) *freshet {
	s.t.Helper()
	f := &freshet{t: s.t, listen: testbed.FreeAddress(s.t)}
	config := fmt.Sprintf("admin: {listen: %q}\n", f.listen) + strings.Join(sections, "\n")
	f.Running = testbed.Program{Args: strings.Fields(command), Config: config}.Start(s.t)
	return f
}

// The sections of a configuration.
func (s *shop) reads() string {
	user, password := s.source.MayRead(s.t, "shop.*")
	return fmt.Sprintf(`source: {name: shop, addresses: [%q], user: %q, password: %q, heartbeat: 200ms,
  fill_from: [%q]}
mappings:
  - table: shop.product
    keys: ["product:{id}", "category:{category_id}:products"]
    second_delete: 500ms
  - table: shop.note
    keys: ["note:{id}"]
    second_delete: 500ms
  - table: shop.product
    keys: ["product:{id}:price"]
    rebuild: {query: "SELECT price FROM shop.product WHERE id = :id", as: hash, ttl: 1h}
    publish: {channel: price-changed, message: "{id}"}
    second_delete: 500ms
    rate_limit: 500
`, s.source.Addr, user, password, s.source.Addr)
}

// deletes gives keys in trouble up soon.
func (s *shop) deletes() string {
	return fmt.Sprintf(`redis: {addresses: [%q]}
invalidator: {second_delete: 500ms}
retry: {max_attempts: 2, park_after: 1, park_delays: [1s], min_backoff: 10ms}
`, s.redis.Addr)
}

func (s *shop) embedded() string {
	return fmt.Sprintf("eventlog: {dir: %q}\n", filepath.Join(s.t.TempDir(), "data"))
}

// run starts a freshet in one process, and waits until the cache is fresh.
func (s *shop) run() *freshet {
	s.t.Helper()
	f := s.start("run", s.reads(), s.deletes(), s.embedded())
	f.await("fresh")
	return f
}

// onKafka starts a reader and two invalidators with Kafka between them.
func (s *shop) onKafka() []*freshet {
	s.t.Helper()
	k := testbed.SharedKafka(s.t)
	name := k.NewTopicName(s.t)
	log := fmt.Sprintf("eventlog: {kind: kafka, kafka: {brokers: [%q], topic: %q, group: %q, partitions: 4, "+
		"replication_factor: 1}}\n",
		strings.Join(k.Brokers(), `", "`), name, name)
	all := []*freshet{s.start("reader", s.reads(), log)}
	for range 2 {
		all = append(all, s.start("invalidator", s.reads(), s.deletes(), log)) // for the query of a rebuild
	}
	for _, f := range all {
		f.await("fresh")
	}
	return all
}

// await waits until the state is the given word.
func (f *freshet) await(state string) {
	f.t.Helper()
	testbed.Eventually(f.t, patience, "the state is "+state, func() bool {
		var now struct{ State string }
		return getJSON(f.t.Context(), f.url()+"/status", &now) == nil && now.State == state
	})
}

// getJSON decodes what a URL answers.
func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// load changes rows, about a hundred a second, until the test ends or stop is called.
func (s *shop) load() (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := change(ctx, s.source.DB(), n); err != nil && ctx.Err() == nil {
				s.t.Errorf("change a row: %v", err)
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); writer.Wait() })
	s.t.Cleanup(stop)
	return stop
}

func change(ctx context.Context, db *sql.DB, n int) error {
	if _, err := db.ExecContext(ctx, "REPLACE INTO shop.product VALUES (?, ?, ?)", n%50, n%7, n); err != nil {
		return err
	}
	if n%10 > 0 {
		return nil
	}
	_, err := db.ExecContext(ctx, "REPLACE INTO shop.note VALUES (?, ?)", n%20, fmt.Sprint("note ", n))
	return err
}
