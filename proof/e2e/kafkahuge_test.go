package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// A transaction with millions of keys passes through Kafka in bounded memory on both sides, and although the broker is
// killed in the middle of it and stays away for longer than a session: both sides say so, wait, and go on by
// themselves.
func TestAHugeTransactionPassesThroughKafkaThoughItIsAwayInBetween(t *testing.T) {
	t.Parallel()
	rows, away := testbed.Cut(300_000, 5_000_000), testbed.Cut(15*time.Second, 2*time.Minute)
	f := newFleet(t, testbed.MySQL(t, "--max-binlog-size=1G"), testbed.Kafka(t), 0, 0)
	f.fast = true
	f.source.Exec(t, schema...)
	start := f.placeNow()
	hugeTx(f.rig, rows)
	reader, invalidator := f.prepare("reader", "reader"), f.prepare("invalidator", "invalidator")
	reader.write(f.inKafka("unused"),
		fmt.Sprintf("source: {addresses: [%q], %s, start: %q, heartbeat: 200ms}\ninvalidator: {second_delete: 2s}\n",
			f.binlog.Addr(), f.cfg.login, start),
		strings.Replace(mappings, `      - "product:{id}"`, `      - "product:{id}"`+"\n"+`      - "name:{name}"`, 1))
	// Straight to Redis: a log of millions of commands is nobody's evidence. What was there must be gone.
	invalidator.write(f.inKafka("g"+f.topic[len(f.topic)-8:]),
		fmt.Sprintf("redis: {addresses: [%q]}\ninvalidator: {max_pending: %d}", f.redis.Addr, rows/5))
	f.redis.Do(t, "DEBUG", "POPULATE", rows+1, "product", 5) // product:0 is no row's
	// With freshet's stamp or without: while there are millions, to list keys holds up Redis.
	size := func() int64 { return f.redis.Do(t, "DBSIZE").(int64) }
	reader.launch(reader.role)
	invalidator.launch(invalidator.role)
	testbed.Eventually(t, 2*time.Minute, "a tenth of the keys is deleted",
		func() bool { return size() < int64(rows)*9/10 })

	broker := f.kafka.Broker(1)
	testbed.Must(t, broker.Kill())
	killed := time.Now()
	for _, m := range []*rig{reader, invalidator} {
		m.await("it says that kafka is away", 3*time.Minute, func(s status) bool {
			return s.State == "behind" && strings.Contains(s.Sentence, "kafka: ") && strings.Contains(s.Sentence, broker.Addr) &&
				strings.Contains(s.Sentence, "nothing is lost")
		})
	}
	said := time.Since(killed)
	<-time.After(away - said)
	left, resident := size(), reader.resident()
	if left <= 1 {
		t.Fatal("everything was through before the broker was killed, so this shows nothing")
	}
	testbed.Must(t, broker.Start(t.Context()))
	back := time.Now()
	testbed.Eventually(t, 2*time.Minute, "more keys are deleted", func() bool { return size() < left })
	again := time.Since(back)
	reader.finish(5 * time.Minute)
	invalidator.finish(5 * time.Minute)
	if n := f.left(); n != 1 {
		t.Errorf("%d keys are left, want 1", n)
	}
	t.Logf("%d rows in one transaction; the reader had at most %d MiB resident (%d MiB while Kafka was away), the "+
		"invalidator %d MiB; trouble was told after %s, %d keys were left, and went on %s after the broker's return",
		rows, reader.resident()>>20, resident>>20, invalidator.resident()>>20, said, left, again)
	for _, m := range []*rig{reader, invalidator} {
		if n := m.resident(); n > residentLimit {
			t.Errorf("%s: %d MiB were resident, more than %d", m.role, n>>20, residentLimit>>20)
		}
		m.stop()
	}
}
