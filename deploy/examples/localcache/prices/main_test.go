package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// The program serves prices from its memory, and the new one once the row has changed: with a real freshet, database
// and Redis.
func TestAPriceIsServedFromMemoryUntilItsRowChanges(t *testing.T) {
	source, redis := testbed.MySQL(t), testbed.Redis(t)
	source.Exec(t, "CREATE DATABASE example",
		"CREATE TABLE example.price (id INT PRIMARY KEY, amount DECIMAL(10,2) NOT NULL)",
		"INSERT INTO example.price VALUES (17, 9.90), (18, 49.00)")
	admin := free(t)
	testbed.Program{Args: []string{"run"}, Config: fmt.Sprintf(`source: {addresses: [%q], user: %q, password: %q}
redis: {addresses: [%q]}
eventlog: {dir: %q}
admin: {listen: %q}
mappings:
  - table: example.price
    keys: ["price:{id}"]
    stream: {key: price-changes, maxlen: 10000}
`, source.Addr, source.User, source.Password, redis.Addr, filepath.Join(t.TempDir(), "data"), admin)}.Start(t)

	listen := free(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	dsn := fmt.Sprintf("%s:%s@tcp(%s)/example", source.User, source.Password, source.Addr)
	go func() { served <- serve(ctx, listen, redis.Addr, dsn) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(id int) (price string, held bool) {
		res, err := client.Get(fmt.Sprintf("http://%s/price/%d", listen, id))
		if err != nil {
			return "", false // it does not listen yet
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		testbed.Must(t, err)
		return strings.TrimSpace(string(body)), res.Header.Get("X-From-Memory") == "true"
	}
	testbed.Eventually(t, patience, "it is served from memory",
		func() bool { price, held := get(17); return held && price == "9.90" })
	testbed.Eventually(t, patience, "freshet follows the binlog", func() bool {
		res, err := client.Get("http://" + admin + "/readyz")
		if err == nil {
			res.Body.Close()
		}
		return err == nil && res.StatusCode == http.StatusOK
	})
	for _, amount := range []string{"12.50", "13.00", "13.50"} {
		source.Exec(t, "UPDATE example.price SET amount = "+amount+" WHERE id = 17")
		testbed.Eventually(t, patience, "the new price is served, and kept",
			func() bool { price, held := get(17); return held && price == amount })
	}
	testbed.Eventually(t, patience, "the other one is held, too",
		func() bool { price, held := get(18); return held && price == "49.00" })
	if price, _ := get(19); price != "404 page not found" {
		t.Errorf("a price that is not there: %s", price)
	}
	cancel()
	testbed.Must(t, <-served)
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}
