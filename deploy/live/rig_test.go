package live

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/testbed"
)

// patience is how long a test waits for what should happen at once. It is no measure of speed: the machine is busy.
const patience = 30 * time.Second

// site is a shop whose cache a freshet keeps fresh: a database, a Redis, and the program as it is built.
type site struct {
	t      *testing.T
	source *testbed.Server
	redis  *testbed.RedisServer
	// listen is the admin listener of the freshet.
	listen  string
	freshet *testbed.Running
}

// newSite starts the servers and a freshet in one process, and waits until the cache is fresh.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, source: testbed.MySQL(t), redis: testbed.Redis(t), listen: freeAddress(t)}
	s.source.Exec(t, "CREATE DATABASE shop",
		"CREATE TABLE shop.product (id INT PRIMARY KEY, category_id INT NOT NULL, price INT NOT NULL)",
		"CREATE TABLE shop.note (id INT PRIMARY KEY, text VARCHAR(50))")
	s.freshet = testbed.Program{Args: []string{"run"}, Config: fmt.Sprintf(`
source: {name: shop, addresses: [%q], user: %q, password: %q, heartbeat: 200ms}
redis: {addresses: [%q]}
eventlog: {dir: %q}
invalidator: {second_delete: 100ms}
admin: {listen: %q}
mappings:
  - table: shop.product
    keys: ["product:{id}", "category:{category_id}:products"]
  - table: shop.note
    keys: ["note:{id}"]
`, s.source.Addr, s.source.User, s.source.Password, s.redis.Addr, filepath.Join(t.TempDir(), "data"), s.listen)}.Start(t)
	s.await("fresh")
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func (s *site) url() string { return "http://" + s.listen }

// await waits until the state is the given word.
func (s *site) await(state string) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "the state is "+state, func() bool {
		var now struct{ State string }
		return getJSON(s.t.Context(), s.url()+"/status", &now) == nil && now.State == state
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
func (s *site) load() (stop func()) {
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
