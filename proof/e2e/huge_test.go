package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// residentLimit is the most memory that freshet may have resident while a transaction of any size passes.
const residentLimit = 200 << 20

// hugeTx makes one transaction of n rows in shop.product, each of which makes its keys stale.
func hugeTx(r *rig, n int) {
	r.t.Helper()
	db := r.source.DB()
	exec := func(q string) {
		r.t.Helper()
		if _, err := db.ExecContext(r.t.Context(), q); err != nil {
			r.t.Fatal(err)
		}
	}
	exec("CREATE TABLE shop.numbers (n INT PRIMARY KEY)")
	exec("INSERT INTO shop.numbers VALUES (1)")
	for have := 1; have < n; have *= 2 {
		exec(fmt.Sprintf("INSERT INTO shop.numbers SELECT n + %d FROM shop.numbers WHERE n + %d <= %d", have, have, n))
	}
	exec("INSERT INTO shop.product (id, category_id, name) SELECT n, n, CONCAT('name of product number ', n) FROM " +
		"shop.numbers")
}

// A transaction with far more keys than max_pending passes in bounded memory, without help from GOMEMLIMIT, and each
// of its keys is deleted.
func TestAHugeTransactionPassesInBoundedMemory(t *testing.T) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		rows := testbed.Cut(300_000, 5_000_000)
		r := newRig(t, start(t, "--max-binlog-size=1G"))
		r.fast = true
		r.source.Exec(t, schema...)
		r.cfg.d = "2s"
		r.cfg.start = r.placeNow()
		r.cfg.extra = "log: {level: warn}\n"
		hugeTx(r, rows)
		r.configure()
		// Three keys for each row.
		text, err := os.ReadFile(r.file)
		testbed.Must(t, err)
		text = bytes.Replace(text, []byte(`      - "product:{id}"`),
			[]byte(`      - "product:{id}"`+"\n"+`      - "name:{name}"`), 1)
		text = bytes.Replace(text, []byte("second_delete: 2s"),
			fmt.Appendf(nil, "second_delete: 2s, max_pending: %d", rows/5), 1)
		testbed.Must(t, os.WriteFile(r.file, text, 0o600))
		// Straight to Redis: a log of 15 million commands is nobody's evidence. What was there must be gone.
		for _, arg := range [][]any{{"product", rows + 1}, {"category", 1}} {
			r.redis.Do(t, "DEBUG", "POPULATE", arg[1], arg[0], 5)
		}
		direct(t, r)
		r.launch("run", "--until-caught-up")
		peak := r.watchMemory()
		if r.proc.err != nil {
			t.Fatalf("freshet: %v\n%s", r.proc.err, r.proc.stderr.String())
		}
		out := strings.TrimSpace(r.proc.stderr.String())
		r.proc = nil
		t.Logf("%d rows in one transaction, at most %d MiB resident; %s", rows, peak>>20,
			out[strings.LastIndexByte(out, '\n')+1:])
		if peak > residentLimit {
			t.Errorf("%d MiB were resident, more than %d", peak>>20, residentLimit>>20)
		}
		// product:0 and category:0 are no row's.
		if n := r.left(); n != 2 {
			t.Errorf("%d keys are left, want 2", n)
		}
	})
}

// left returns how many keys are in Redis, besides freshet's stamp.
func (r *rig) left() int64 {
	r.t.Helper()
	stamps := r.redis.Do(r.t, "KEYS", "freshet:stamp:*").([]any)
	return r.redis.Do(r.t, "DBSIZE").(int64) - int64(len(stamps))
}

// direct lets freshet talk to Redis without the logging proxy.
func direct(t *testing.T, r *rig) {
	t.Helper()
	text, err := os.ReadFile(r.file)
	testbed.Must(t, err)
	testbed.Must(t, os.WriteFile(r.file, bytes.ReplaceAll(text, []byte(r.resp.Addr()), []byte(r.redis.Addr)), 0o600))
}

// watchMemory waits until freshet ends and returns the most memory that it had resident, in bytes.
func (r *rig) watchMemory() int {
	r.t.Helper()
	peak := 0
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if n := r.resident(); n > peak {
			peak = n
		}
		select {
		case <-r.proc.exited:
			return peak
		case <-tick.C:
		}
	}
}

// resident returns the high-water mark of freshet's resident memory, 0 when it has ended.
func (r *rig) resident() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.proc.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	f := strings.Fields(after)
	if len(f) == 0 {
		return 0 // a zombie has no memory
	}
	kib, err := strconv.Atoi(f[0])
	if err != nil {
		r.t.Fatalf("VmHWM %q: %v", f[0], err)
	}
	return kib << 10
}

// Redis stops in the middle of a huge transaction for longer than the server's net_write_timeout, so that the server
// gives the stream up. freshet goes on from where it was: the transaction gets through.
func TestRedisStopsInTheMiddleOfAHugeTransaction(t *testing.T) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		rows := testbed.Cut(400_000, 5_000_000)
		pause := testbed.Cut(8*time.Second, 3*time.Minute)
		args := []string{"--max-binlog-size=1G"}
		if !testbed.Soak() {
			args = append(args, "--net-write-timeout=2")
		}
		r := newRig(t, start(t, args...))
		r.fast = true
		r.source.Exec(t, schema...)
		r.cfg.d = "1s"
		r.cfg.start = r.placeNow()
		r.cfg.extra = "log: {level: info}\n"
		hugeTx(r, rows)
		r.configure()
		r.redis.Do(t, "DEBUG", "POPULATE", rows+1, "product", 5)
		direct(t, r)
		r.launch()
		size := func() int64 { return r.redis.Do(t, "DBSIZE").(int64) }
		testbed.Eventually(t, 2*time.Minute, "a tenth of the keys is deleted",
			func() bool { return size() < int64(rows)*9/10 })
		testbed.Must(t, r.redis.Pause())
		<-time.After(pause)
		dumps := r.binlog.Dumps()
		testbed.Must(t, r.redis.Resume())
		r.finish(5 * time.Minute)
		if n := r.left(); n != 1 {
			t.Errorf("%d keys are left, want 1", n)
		}
		t.Logf("%d dumps before Redis came back, %d in all, at most %d MiB resident", dumps, r.binlog.Dumps(),
			r.resident()>>20)
		if r.binlog.Dumps() < 2 {
			t.Error("the server never gave the stream up, so this test shows nothing")
		}
		r.stop()
	})
}
