package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// BenchmarkQuery compares a query with what database/sql takes for it, over as many connections. "cpu-ns" is this
// process's alone.
func BenchmarkQuery(b *testing.B) {
	s := testbed.MySQL(b)
	s.Exec(b, "create database shop character set utf8mb4",
		"create table shop.sale (id bigint primary key, name varchar(100) not null, stock int not null)")
	for lo := 0; lo < 10_000; lo += 1000 {
		var values []string
		for id := lo; id < lo+1000; id++ {
			values = append(values, fmt.Sprintf("(%d, repeat('n', 64), 0)", id))
		}
		s.Exec(b, "insert into shop.sale values "+strings.Join(values, ","))
	}
	q := as(b, event.FormJSON, "SELECT id, name, stock FROM sale WHERE id = :id")
	r := newRunner(b, options(s, q))
	inTurn := func(b *testing.B, ask func(w, id int) error) {
		var next atomic.Int64
		var all sync.WaitGroup
		begin := cpu()
		for w := range DefaultPool {
			all.Go(func() {
				for id := next.Add(1); id < int64(b.N); id = next.Add(1) {
					if err := ask(w, int(id)%10_000); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(float64(cpu()-begin)/float64(b.N), "cpu-ns/op")
	}
	b.Run("freshet", func(b *testing.B) {
		b.ReportAllocs()
		inTurn(b, func(_, id int) error {
			_, _, err := one(context.Background(), r, DefaultSource, q.ID, params(strconv.Itoa(id)), nil)
			return err
		})
	})
	b.Run("together", func(b *testing.B) {
		b.ReportAllocs()
		inTurn(b, func(_, id int) error {
			if id%16 != 0 {
				return nil
			}
			var failed error
			asked := make([]event.Fields, 16)
			for i := range asked {
				asked[i] = params(strconv.Itoa(id + i))
			}
			r.Query(context.Background(), DefaultSource, q.ID, asked, nil, func(_ int, _ event.Fields, _ bool, err error) bool {
				failed = errors.Join(failed, err)
				return true
			})
			return failed
		})
	})
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		db := s.DB()
		db.SetMaxIdleConns(DefaultPool)
		stmt, err := db.Prepare("SELECT id, name, stock FROM shop.sale WHERE id = ?")
		testbed.Must(b, err)
		defer stmt.Close()
		inTurn(b, func(_, id int) error {
			var key, name, stock string
			return stmt.QueryRow(id).Scan(&key, &name, &stock)
		})
	})
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
