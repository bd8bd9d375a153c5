package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// slowReaders fill the cache from the table, each a while after it has read the row, until stop is called.
func (s *site) slowReaders(n, rows int, within time.Duration) (stop func(), filled *atomic.Int64) {
	reading, end := context.WithCancel(s.t.Context())
	filled = &atomic.Int64{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for reading.Err() == nil {
				d := document{ID: rand.IntN(rows)}
				began := time.Now()
				row := s.source.DB().QueryRowContext(reading, "SELECT price FROM shop.product WHERE id = ?", d.ID)
				if row.Scan(&d.Price) != nil {
					continue // it is gone
				}
				select {
				case <-reading.Done():
				case <-time.After(rand.N(within / 2)):
				}
				// A reader that the machine has held up for too long keeps its promise by not writing.
				writing, cancel := context.WithDeadline(reading, began.Add(within*3/4))
				text, _ := json.Marshal(map[string]int{"id": d.ID, "price": d.Price})
				if s.redis.Client().Set(writing, fmt.Sprintf("product:%d", d.ID), text, 0).Err() == nil {
					filled.Add(1)
				}
				cancel()
			}
		})
	}
	return func() {
		end()
		all.Wait()
	}, filled
}

// Warm-ups are asked for, cancelled and killed, while rows change and slow readers fill the cache. At the end no value
// is older than its row.
func TestWarmUpsThatAreCancelledAndKilledLeaveNoStaleValue(t *testing.T) {
	t.Parallel()
	const rows = 300
	s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
	s.mappings, s.extra = `
  - {table: shop.product, keys: ["product:{id}"], second_delete: 2s, rebuild: {from: row, as: json}}
`, "scope_rate: 300\n"
	s.fill(rows)
	w := s.walkers()
	stopWriting := s.keepWriting(func() int { return rand.IntN(rows) })
	stopReading, filled := s.slowReaders(24, rows, 2*time.Second)
	for round := range testbed.Cut(2, 4) {
		leader, other := w.leads()
		other.ask("warm", "--table", "shop.product")
		other.await("rows are walked", func(st *app.Status) bool {
			return len(st.WarmUps) == 0 || st.WarmUps[0].Rows > int64(rand.IntN(rows))
		})
		id := ""
		if all := other.status().WarmUps; len(all) > 0 {
			id = all[0].ID
		}
		if round%2 == 0 {
			if id != "" { // it may have ended by now
				other.start("warm", "--cancel", id).Wait(t, patience)
			}
		} else {
			w.running[leader].Kill9()
			w.running[leader] = leader.start("invalidator")
			leader.await("it is back", func(*app.Status) bool { return true })
		}
		other.await("it has ended", func(st *app.Status) bool { return len(st.WarmUps) == 0 })
	}
	stopWriting()
	stopReading()
	for _, p := range append(w.members, w.reader) {
		p.freshAgain()
	}
	var have, cached map[int]int
	testbed.Eventually(t, patience, "no value is older than its row", func() bool {
		have, cached = s.products()
		for id, price := range cached {
			if p, there := have[id]; !there || p != price {
				return false
			}
		}
		return true
	})
	t.Logf("%d fills, %d rows, %d values", filled.Load(), len(have), len(cached))
}

// The member that walks is killed between the first and the final action of its keys, and then the warm-up is
// cancelled. Another member has older changes of the keys in hand, whose final actions take those of the walk for newer
// ones.
func TestAWarmUpThatIsKilledAndThenCancelledLeavesNoStaleValue(t *testing.T) {
	const rows = 60
	s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
	s.mappings = `
  - {table: shop.product, keys: ["product:{id}"], second_delete: 20s, rebuild: {from: row, as: json}}
`
	s.fill(rows)
	w := s.walkers()
	leader, other := w.leads()
	s.source.Exec(t, "UPDATE shop.product SET price = 777")
	other.await("the changes are in hand", func(st *app.Status) bool { return st.Pending > 0 })
	other.ask("warm", "--table", "shop.product")
	other.await("rows are walked", func(st *app.Status) bool { return len(st.WarmUps) == 1 && st.WarmUps[0].Keys == rows })
	id := other.status().WarmUps[0].ID
	w.running[leader].Kill9()
	if code := other.start("warm", "--cancel", id).Wait(t, patience); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	for n := range rows { // readers that have read the rows before they were changed
		s.redis.Do(t, "set", fmt.Sprintf("product:%d", n), fmt.Sprintf(`{"id":%d,"price":1}`, n))
	}
	other.await("it has ended", func(st *app.Status) bool { return len(st.WarmUps) == 0 })
	w.reader.freshAgain()
	other.freshAgain()
	_, cached := s.products()
	for n, price := range cached {
		if price != 777 {
			t.Errorf("product:%d has the price %d", n, price)
		}
	}
}
