package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// busyRows is how many products change, and busyD the second delete: readers keep to it.
const (
	busyRows = 150
	busyD    = time.Second
)

// busySite is a site under load: products change, and readers fill the cache from them.
type busySite struct {
	*site
	client redis.UniversalClient
	forms  []form // in which readers keep products
	hot    int    // so many of the products are changed by the load

	load   sync.WaitGroup
	lasts  context.Context
	stop   context.CancelFunc
	filled atomic.Int64 // by readers
	eased  atomic.Int64 // how many wait for freshet to be fresh
	late   sync.Map     // what readers filled later than D, as when a busy machine has stopped them
}

// filling is a value that a reader fills the cache with.
type filling struct {
	form  string
	id    int
	price string
}

// form is a way in which readers keep a product.
type form struct {
	name string
	// fill keeps a price that was read from the row, unless there is one.
	fill func(ctx context.Context, rdb redis.Cmdable, id int, price string) error
	// held returns the price that is there. Empty: none is.
	held func(ctx context.Context, rdb redis.Cmdable, id int, price string) (string, error)
}

// text is the form of a key that holds the price.
func text(name string) form {
	key := func(id int) string { return fmt.Sprint(name, ":", id) }
	return form{
		name: name,
		fill: func(ctx context.Context, rdb redis.Cmdable, id int, price string) error {
			return rdb.SetNX(ctx, key(id), price, 0).Err()
		},
		held: func(ctx context.Context, rdb redis.Cmdable, id int, _ string) (string, error) {
			return orNone(rdb.Get(ctx, key(id)).Result())
		},
	}
}

// orNone takes a nil reply for an empty value.
func orNone(value string, err error) (string, error) {
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return value, err
}

// newBusySite fills the table of a site. Readers have no client yet.
func newBusySite(t *testing.T, s *site) *busySite {
	t.Helper()
	l := &busySite{site: s, hot: busyRows, forms: []form{text("product"), text("price")}}
	for id := range busyRows {
		s.write(id)
	}
	l.lasts, l.stop = context.WithCancel(t.Context())
	return l
}

// through gives readers a client, which is closed in the end.
func (s *busySite) through(client redis.UniversalClient) {
	s.client = client
	s.t.Cleanup(func() {
		s.haltLoad()
		testbed.Must(s.t, client.Close())
	})
}

// startLoad has products change and readers read until haltLoad.
func (s *busySite) startLoad() {
	s.stop()
	s.lasts, s.stop = context.WithCancel(s.t.Context())
	lasts := s.lasts
	s.load.Go(func() {
		for lasts.Err() == nil {
			_, err := s.source.DB().ExecContext(lasts, "UPDATE shop.product SET price = price + 1 WHERE id IN (?, ?)",
				rand.IntN(s.hot), rand.IntN(s.hot))
			if err != nil && lasts.Err() == nil {
				s.t.Error(err)
				return
			}
			rest(lasts, time.Duration(len(s.forms))*5*time.Millisecond)
			s.ease(lasts)
		}
	})
	for range 6 {
		s.load.Go(func() {
			for lasts.Err() == nil {
				s.fill(lasts, rand.IntN(busyRows))
				s.ease(lasts)
			}
		})
	}
}

// ease rests while somebody waits for freshet to be fresh: on a busy machine it may never be under the full load.
func (s *busySite) ease(lasts context.Context) {
	if s.eased.Load() > 0 {
		rest(lasts, 100*time.Millisecond)
	}
}

func (s *busySite) haltLoad() {
	s.stop()
	s.load.Wait()
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// fill is one reader: what it has read is in the cache before D is over, or never.
func (s *busySite) fill(ctx context.Context, id int) {
	ctx, cancel := context.WithTimeout(ctx, busyD*3/4)
	defer cancel()
	began := time.Now()
	price, err := s.price(ctx, id)
	if err != nil {
		return
	}
	rest(ctx, time.Duration(rand.Int64N(int64(busyD/2))))
	for _, f := range s.forms {
		if f.fill(ctx, s.client, id, price) == nil {
			s.filled.Add(1)
		}
		if took := time.Since(began); took > busyD {
			s.t.Logf("a reader has filled %s of %d with %s after %s, which no D of %s is for", f.name, id, price, took, busyD)
			s.late.Store(filling{f.name, id, price}, true)
		}
	}
}

func (s *busySite) price(ctx context.Context, id int) (price string, err error) {
	err = s.source.DB().QueryRowContext(ctx, "SELECT price FROM shop.product WHERE id = ?", id).Scan(&price)
	return price, err
}

// finished waits until all that is committed now is finished.
func (s *busySite) finished(by ...*site) {
	s.t.Helper()
	s.eased.Add(1)
	defer s.eased.Add(-1)
	now := time.Now()
	for _, p := range by {
		defer func() {
			if s.t.Failed() {
				_, said := p.get("/status")
				s.t.Log(said)
			}
		}()
		p.await("all is finished", func(st *app.Status) bool { return st.State == app.Fresh && st.FreshAsOf.After(now) })
	}
}

// compare compares what is cached with the rows. It returns how many values are there, and what is not as its row or
// cannot be read.
func (s *busySite) compare() (held int, wrong []string) {
	s.t.Helper()
	for id := range busyRows {
		want, err := s.price(s.t.Context(), id)
		testbed.Must(s.t, err)
		for _, f := range s.forms {
			switch got, err := f.held(s.t.Context(), s.client, id, want); {
			case err != nil:
				wrong = append(wrong, fmt.Sprintf("%s of %d: %v", f.name, id, err))
			case got == want:
				held++
			case got != "":
				price, _, _ := strings.Cut(got, " ")
				if _, late := s.late.Load(filling{f.name, id, price}); !late {
					wrong = append(wrong, fmt.Sprintf("%s of %d is %s, its row %s", f.name, id, got, want))
				}
			}
		}
	}
	return held, wrong
}

// stopLoad ends the load, waits until all changes are finished, and compares what is cached with the rows.
func (s *busySite) stopLoad(by ...*site) {
	s.t.Helper()
	s.haltLoad()
	s.finished(by...)
	if s.filled.Load() == 0 {
		s.t.Error("no reader has filled anything")
	}
	held, wrong := s.compare()
	for _, w := range wrong {
		s.t.Error(w)
	}
	if held == 0 {
		s.t.Error("nothing is cached, so nothing is shown")
	}
	for _, p := range by {
		if st := p.status(); st == nil || st.Parked+st.DeadLetters != 0 {
			s.t.Errorf("keys in trouble: %+v", st)
		}
	}
}
