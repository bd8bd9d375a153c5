package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
)

// fleet is freshet as several processes around Kafka: readers of one source, and invalidators of one Redis. Each is a
// rig of its own that shares the servers and proxies of the first.
type fleet struct {
	*rig
	kafka        *testbed.KafkaCluster
	topic        string
	partitions   int
	readers      []*rig
	invalidators []*rig
}

// newFleet prepares processes around a cluster. They are not started.
func newFleet(t *testing.T, source *testbed.Server, kafka *testbed.KafkaCluster, readers, invalidators int) *fleet {
	t.Helper()
	return newFleetFor(t, loadD, mappings, source, kafka, readers, invalidators)
}

// newFleetFor is newFleet with another second delete and other mappings.
func newFleetFor(t *testing.T, d, mappings string, source *testbed.Server, kafka *testbed.KafkaCluster, readers,
	invalidators int,
) *fleet {
	t.Helper()
	r := newRig(t, source, "--appendonly", "yes", "--appendfsync", "no")
	r.cfg.d, r.cfg.mappings = d, mappings
	return newFleetOn(r, kafka, readers, invalidators)
}

// newFleetOn prepares processes as a rig has them.
func newFleetOn(r *rig, kafka *testbed.KafkaCluster, readers, invalidators int) *fleet {
	r.t.Helper()
	f := &fleet{rig: r, kafka: kafka, topic: kafka.NewTopicName(r.t), partitions: 6}
	for i := range readers {
		f.readers = append(f.readers, f.member("reader", i))
	}
	for i := range invalidators {
		f.invalidators = append(f.invalidators, f.member("invalidator", i))
	}
	return f
}

// member prepares one process.
func (f *fleet) member(role string, n int) *rig {
	f.t.Helper()
	m := f.prepare(role, fmt.Sprintf("%s-%d", role, n))
	switch role {
	case "reader":
		m.write(f.inKafka(f.group()), m.fromSource("default"))
	default:
		parts := []string{f.inKafka(f.group()), m.toRedis()}
		if f.cfg.mappings != mappings { // queries are run by the process that writes their results
			parts = append(parts, m.fromSource("default"))
		}
		m.write(parts...)
	}
	return m
}

// prepare makes a process around Kafka, with a listener of its own. Its configuration is still to be written.
func (f *fleet) prepare(role, name string) *rig {
	f.t.Helper()
	f.build()
	m := *f.rig
	m.role, m.listen = role, testbed.FreeAddress(f.t)
	m.client = admin.NewClient("http://"+m.listen, adminToken, nil)
	m.file = filepath.Join(f.t.TempDir(), name+".yaml")
	f.t.Cleanup(func() {
		if m.proc != nil {
			m.kill()
		}
	})
	return &m
}

// write writes the configuration of a process from its parts.
func (r *rig) write(parts ...string) {
	r.t.Helper()
	text := fmt.Sprintf("admin: {listen: %q, token: %q}\n", r.listen, adminToken) + strings.Join(parts, "\n")
	testbed.Must(r.t, os.WriteFile(r.file, []byte(text), 0o600))
}

// withoutToken takes the token of operators out of the configuration that is written.
func (r *rig) withoutToken() {
	r.t.Helper()
	text, err := os.ReadFile(r.file)
	testbed.Must(r.t, err)
	text = bytes.ReplaceAll(text, fmt.Appendf(nil, ", token: %q", adminToken), nil)
	testbed.Must(r.t, os.WriteFile(r.file, text, 0o600))
}

// group is that of the invalidators.
func (f *fleet) group() string { return "g-" + f.topic[len(f.topic)-8:] }

// inKafka is the part about the event log, for a group of invalidators.
func (f *fleet) inKafka(group string) string {
	return fmt.Sprintf("eventlog: {kind: kafka, kafka: {brokers: [%s], topic: %q, group: %q, partitions: %d, "+
		"replication_factor: %d}}",
		`"`+strings.Join(f.kafka.Brokers(), `", "`)+`"`, f.topic, group, f.partitions, min(3, len(f.kafka.Brokers())))
}

// fromSource is the part about a reader's source.
func (r *rig) fromSource(name string) string {
	return fmt.Sprintf("source: {name: %s, addresses: [%q%s], %s, heartbeat: 200ms%s}\ninvalidator: {second_delete: "+
		"%s}\n%s",
		name, r.binlog.Addr(), r.cfg.besides, r.cfg.login, r.cfg.source, r.cfg.d, r.cfg.mappings)
}

// toRedis is the part about an invalidator's Redis.
func (r *rig) toRedis() string {
	return fmt.Sprintf("redis: {addresses: [%q]%s}\n%s", r.resp.Addr(), r.cfg.redis, r.cfg.extra)
}

func (f *fleet) members() []*rig { return append(append([]*rig{}, f.readers...), f.invalidators...) }

// start starts all processes and waits until one reads and the others have all partitions among them.
func (f *fleet) start() {
	f.t.Helper()
	for _, m := range f.members() {
		m.launch(m.role)
	}
	f.awaitAll("the fleet works", 3*time.Minute, func(readers, invalidators []status) bool {
		leading := 0
		for _, s := range readers {
			if s.Source.Connected {
				leading++
			}
		}
		return leading == 1 && len(partitionsOf(invalidators)) == f.partitions
	})
}

// partitionsOf returns which partitions the invalidators have among them.
func partitionsOf(invalidators []status) map[int]bool {
	all := map[int]bool{}
	for _, s := range invalidators {
		for _, p := range s.Partitions {
			all[p.ID] = true
		}
	}
	return all
}

// awaitAll waits until the status of all processes, looked at in one round, satisfies cond.
func (f *fleet) awaitAll(what string, d time.Duration, cond func(readers, invalidators []status) bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), d)
	defer cancel()
	for asked := 0; ; asked++ {
		began := time.Now()
		readers, invalidators := f.statuses(ctx, f.readers), f.statuses(ctx, f.invalidators)
		if cond(readers, invalidators) {
			return
		}
		select {
		case <-ctx.Done():
			said := ""
			for _, m := range f.members() {
				said += fmt.Sprintf("--- %s\n%s\n", filepath.Base(m.file), tail(m.proc.stderr.String()))
			}
			f.t.Fatalf("%s: not within %s; readers %+v invalidators %+v\n%s", what, d, readers, invalidators, said)
		case <-time.After(testbed.Pause(asked, time.Since(began))):
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// statuses asks each process; one that does not answer has the zero status.
func (f *fleet) statuses(ctx context.Context, members []*rig) []status {
	f.t.Helper()
	var all []status
	for _, m := range members {
		ask, cancel := context.WithTimeout(ctx, time.Second)
		raw, err := m.client.Status(ask)
		cancel()
		var s status
		if err == nil {
			testbed.Must(f.t, json.Unmarshal(raw, &s))
		}
		select {
		case <-m.proc.exited:
			f.t.Fatalf("%s ended by itself: %v\n%s", filepath.Base(m.file), m.proc.err, m.proc.stderr.String())
		default:
		}
		all = append(all, s)
	}
	return all
}

// finish waits until everything that is committed now is finished, no matter who has its partition.
func (f *fleet) finish(d time.Duration) {
	f.t.Helper()
	now := time.Now()
	f.awaitAll("finish everything", d, func(_, invalidators []status) bool {
		for _, s := range invalidators {
			if s.Parked > 0 || len(s.Partitions) > 0 && !s.FreshAsOf.After(now) {
				return false
			}
		}
		return len(partitionsOf(invalidators)) == f.partitions
	})
}

// stop stops all processes as a supervisor does.
func (f *fleet) stop() {
	f.t.Helper()
	for _, m := range f.members() {
		m.stop()
	}
}

// again kills a process and starts it again.
func (f *fleet) again(m *rig) {
	f.t.Helper()
	m.kill()
	m.launch(m.role)
}

// freeze stops a process with SIGSTOP for a while.
func (f *fleet) freeze(m *rig, d time.Duration) {
	f.t.Helper()
	testbed.Must(f.t, m.proc.cmd.Process.Signal(syscall.SIGSTOP))
	<-time.After(d)
	testbed.Must(f.t, m.proc.cmd.Process.Signal(syscall.SIGCONT))
}

// hurt does one thing to the fleet or to a broker, and undoes it. Sometimes it lasts longer than a session, so that
// others take over.
type hurt struct {
	name string
	do   func(f *fleet, rnd *rand.Rand)
}

// pick returns one of several at random.
func pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }

// while is how long something lasts: mostly short, one time in four past the session of 10 s.
func while(rnd *rand.Rand) time.Duration {
	if rnd.IntN(4) == 0 {
		return 11*time.Second + time.Duration(rnd.IntN(3000))*time.Millisecond
	}
	return time.Duration(100+rnd.IntN(3000)) * time.Millisecond
}

func (f *fleet) broker(rnd *rand.Rand) *testbed.KafkaBroker {
	return f.kafka.Broker(1 + rnd.IntN(len(f.kafka.Brokers())))
}

// down runs a fault of one broker, and waits until the cluster is whole again: it is made to survive one at a time.
func (f *fleet) down(b *testbed.KafkaBroker, begin, end func() error, d time.Duration) {
	f.t.Helper()
	testbed.Must(f.t, begin())
	<-time.After(d)
	testbed.Must(f.t, end())
	f.kafka.AwaitInSync(f.t)
}

func hurts() []hurt {
	return []hurt{
		{"a reader is killed", func(f *fleet, rnd *rand.Rand) { f.again(pick(rnd, f.readers)) }},
		{"an invalidator is killed", func(f *fleet, rnd *rand.Rand) { f.again(pick(rnd, f.invalidators)) }},
		{"a reader hangs", func(f *fleet, rnd *rand.Rand) { f.freeze(pick(rnd, f.readers), while(rnd)) }},
		{"an invalidator hangs", func(f *fleet, rnd *rand.Rand) { f.freeze(pick(rnd, f.invalidators), while(rnd)) }},
		{"a broker is killed", func(f *fleet, rnd *rand.Rand) {
			b := f.broker(rnd)
			f.down(b, b.Kill, func() error { return b.Start(context.Background()) }, time.Second)
		}},
		{"a broker restarts", func(f *fleet, rnd *rand.Rand) {
			b := f.broker(rnd)
			f.down(b, b.Stop, func() error { return b.Start(context.Background()) }, 0)
		}},
		{"all brokers are killed", func(f *fleet, rnd *rand.Rand) {
			for id := range f.kafka.Brokers() {
				testbed.Must(f.t, f.kafka.Broker(1+id).Kill())
			}
			<-time.After(while(rnd))
			testbed.Must(f.t, f.kafka.Start(context.Background()))
			f.kafka.AwaitInSync(f.t)
		}},
		{"a broker hangs", func(f *fleet, rnd *rand.Rand) {
			b := f.broker(rnd)
			f.down(b, b.Pause, b.Resume, while(rnd))
		}},
		{"the line to a broker is cut", func(f *fleet, rnd *rand.Rand) {
			line := f.broker(rnd).Proxy
			line.Cut()
			<-time.After(while(rnd))
			testbed.Must(f.t, line.Resume())
		}},
		{"the line to a broker goes silent", func(f *fleet, rnd *rand.Rand) {
			line := f.broker(rnd).Proxy
			line.Stall(3)
			<-time.After(while(rnd))
			testbed.Must(f.t, line.Resume())
		}},
		{"the line to a broker is reset", func(f *fleet, rnd *rand.Rand) { f.broker(rnd).Proxy.Reset() }},
		{"an invalidator joins and leaves", func(f *fleet, rnd *rand.Rand) {
			m := f.member("invalidator", 99)
			m.launch(m.role)
			<-time.After(while(rnd))
			m.stop()
		}},
		{"a leader moves", func(f *fleet, rnd *rand.Rand) {
			f.kafka.MoveLeader(f.t, f.topic, rnd.IntN(f.partitions), 1+rnd.IntN(len(f.kafka.Brokers())))
		}},
	}
}

// Whatever of reader, invalidator, broker and line is killed, hangs, is cut or moves under load, nothing is lost and
// nothing stays stale. Both suites run in a soak, and else one of them, by chance.
func TestAFleetAroundKafkaLosesNothing(t *testing.T) {
	t.Parallel()
	for _, suite := range testbed.Some(t, []struct {
		name string
		run  func(*testing.T)
	}{{"deletes", aFleetDeletes}, {"actions", aFleetDoesEveryAction}}) {
		t.Run(suite.name, func(t *testing.T) {
			t.Parallel()
			suite.run(t)
		})
	}
}

// aFleetDeletes has a cluster of three brokers, which are hurt too.
func aFleetDeletes(t *testing.T) {
	t.Helper()
	rnd := testbed.Seeded(t)
	kafka := testbed.Kafka(t, testbed.KafkaOptions{Brokers: 3, Proxied: true})
	f := newFleet(t, testbed.MySQL(t), kafka, 2, 2)
	crowded(f.source)
	f.source.Exec(t, schema...)
	f.start()
	l := startLoad(f.rig, rnd.Uint64())
	all, faults := hurts(), testbed.Cut(6, 200)
	var order []int
	for n := range faults {
		if len(order) == 0 {
			order = rnd.Perm(len(all)) // each kind comes as often as the others
		}
		h := all[order[0]]
		order = order[1:]
		t.Logf("%d: %s", n+1, h.name)
		h.do(f, rnd)
		<-time.After(time.Duration(rnd.IntN(1000)) * time.Millisecond)
		if n%10 == 9 {
			f.finish(3 * time.Minute)
		}
	}
	t.Logf("%d faults", faults)
	f.settle(l)
}

// settle ends the load, waits until the fleet is done, and verifies both what was deleted and what is cached. Readers
// go on until the fleet has caught up, and a little longer: what they fill before that may be deleted again, and then
// nothing would be left to look at.
func (f *fleet) settle(l *load) {
	f.t.Helper()
	testbed.Must(f.t, l.writers.stop())
	f.finish(3 * time.Minute)
	l.stop()
	f.finish(3 * time.Minute)
	l.journal.verify(f.rig, time.Time{})
	f.verifyCache()
	f.stop()
}
