package proxy_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// reader is a replica that reads the binlog through a proxy, in a goroutine of its own.
type reader struct {
	events chan *replication.EventHeader // heartbeats left out
	syncer *replication.BinlogSyncer
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// read dumps the binlog of s from its start.
func read(t *testing.T, s *testbed.Server, p *proxy.Binlog, serverID uint32) *reader {
	t.Helper()
	r := &reader{events: make(chan *replication.EventHeader, 10_000)}
	r.syncer = replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: serverID, Flavor: string(s.Flavor), Host: "127.0.0.1", Port: uint16(portOf(t, p.Addr())),
		User: s.User, HeartbeatPeriod: 100 * time.Millisecond, DisableRetrySync: true,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	stream, err := r.syncer.StartSync(mysql.Position{Name: "binlog.000001", Pos: 4})
	testbed.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.wg.Go(func() {
		for {
			e, err := stream.GetEvent(ctx)
			if err != nil {
				return
			}
			if e.Header.EventType != replication.HEARTBEAT_EVENT && e.Header.EventType != replication.HEARTBEAT_LOG_EVENT_V2 {
				r.events <- e.Header
			}
		}
	})
	t.Cleanup(r.close)
	return r
}

func (r *reader) close() {
	r.cancel()
	r.syncer.Close()
	r.wg.Wait()
}

func portOf(t *testing.T, addr string) (n int) {
	t.Helper()
	_, err := fmt.Sscanf(addr, "127.0.0.1:%d", &n)
	testbed.Must(t, err)
	return n
}

// take returns the next n events.
func (r *reader) take(t *testing.T, n int) []*replication.EventHeader {
	t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	var got []*replication.EventHeader
	for len(got) < n {
		select {
		case e := <-r.events:
			got = append(got, e)
		case <-timeout.C:
			t.Fatalf("%d events arrived, want %d", len(got), n)
		}
	}
	return got
}

// quiet says that nothing arrives for a while.
func (r *reader) quiet(t *testing.T) {
	t.Helper()
	select {
	case e := <-r.events:
		t.Fatalf("event %s was delivered", e.EventType)
	case <-time.After(50 * time.Millisecond):
	}
}

func eachDatabase(t *testing.T, test func(*testing.T, *testbed.Server)) {
	t.Run("mysql", func(t *testing.T) { test(t, testbed.MySQL(t, "--max-allowed-packet=64M")) })
	t.Run("mariadb", func(t *testing.T) { test(t, testbed.MariaDB(t, "--max-allowed-packet=64M")) })
}

func TestStreamCanBeHeldAfterEachEvent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, s *testbed.Server) {
		p := proxy.StartBinlog(t, s.Addr)
		s.Exec(t, "create database a", "create table a.t (id int primary key, v longblob)",
			"insert into a.t values (1, 'a'), (2, 'b')", "update a.t set v = 'c'")
		_, end := s.BinlogPosition(t)
		r := read(t, s, p, 1001)
		total := 1
		for uint64(r.take(t, 1)[0].LogPos) != end {
			total++
		}
		r.close()
		for n := range total + 1 {
			p.Reset()
			p.HoldAfter(n)
			r := read(t, s, p, uint32(2000+n))
			r.take(t, n)
			if held := <-p.Held(); held.N != max(n, 1) {
				t.Fatalf("held at event %d, want %d", held.N, n)
			}
			r.quiet(t)
			late := read(t, s, p, uint32(3000+n)) // another connection is held too
			late.quiet(t)
			late.close()
			p.Release()
			r.take(t, total-n)
			r.close()
		}
	})
}

func TestEventsLargerThanAPacketCountOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, s *testbed.Server) {
		p := proxy.StartBinlog(t, s.Addr)
		var mu sync.Mutex
		var seen []proxy.Event
		p.OnEvent(func(e proxy.Event) proxy.Verdict {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
			return proxy.Deliver
		})
		s.Exec(t, "create database a", "create table a.t (id int primary key, v longblob)",
			"insert into a.t values (1, repeat('x', 40000000))", "insert into a.t values (2, 'last')")
		r := read(t, s, p, 1001)
		var got []*replication.EventHeader
		for inserts := 0; inserts < 2; {
			got = append(got, r.take(t, 1)...)
			if strings.HasPrefix(got[len(got)-1].EventType.String(), "WriteRows") {
				inserts++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) < len(got) {
			t.Fatalf("%d events counted, %d arrived", len(seen), len(got))
		}
		for i, e := range got {
			if seen[i].Type != byte(e.EventType) || seen[i].Size != e.EventSize || seen[i].N != i+1 {
				t.Fatalf("event %d counted as %+v, arrived as %+v", i, seen[i], e)
			}
		}
	})
}

func TestHeldCommitReachesTheReader(t *testing.T) {
	eachDatabase(t, func(t *testing.T, s *testbed.Server) {
		p := proxy.StartBinlog(t, s.Addr)
		s.Exec(t, "create database a", "create table a.t (id int primary key, v int)", "insert into a.t values (1, 1)")
		r := read(t, s, p, 1001)
		testbed.Must(t, s.HoldCommits(t.Context(), time.Hour))
		done := make(chan error, 1)
		go func() { done <- s.ExecContext(t.Context(), "update a.t set v = 2") }()
		for !strings.HasPrefix(r.take(t, 1)[0].EventType.String(), "UpdateRows") {
		}
		if got := s.QueryText(t, "select v from a.t"); got != "1" {
			t.Fatalf("row is %s when its event arrives, want the old 1", got)
		}
		testbed.Must(t, s.ReleaseCommits(t.Context()))
		testbed.Must(t, <-done)
	})
}

func TestOtherConnectionsPassTheBinlogProxy(t *testing.T) {
	s := testbed.MySQL(t)
	p := proxy.StartBinlog(t, s.Addr)
	p.HoldAfter(0)
	for _, tls := range []string{"false", "skip-verify"} {
		db, err := sql.Open("mysql", s.User+"@tcp("+p.Addr()+")/?maxAllowedPacket=0&tls="+tls)
		testbed.Must(t, err)
		var n int
		testbed.Must(t, db.QueryRowContext(t.Context(), "select length(?)", strings.Repeat("x", 17<<20)).Scan(&n))
		if n != 17<<20 {
			t.Fatalf("length %d", n)
		}
		var v string
		testbed.Must(t, db.QueryRowContext(t.Context(), "select repeat('y', 17*1024*1024)").Scan(&v))
		testbed.Must(t, db.Close())
	}
	if p.Dumps() != 0 || p.Events() != 0 {
		t.Fatalf("%d dumps, %d events", p.Dumps(), p.Events())
	}
}
