package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
)

// shape is how large a fleet is: the partitions of its topic, its groups and how many invalidators each has, its
// readers.
type shape struct{ partitions, groups, invalidators, readers int }

// fleet is readers and invalidators on a topic of their own, each a process as users run it. Each group has a Redis.
type fleet struct {
	shape
	b      *benchmark
	kafka  *testbed.KafkaCluster
	dir    string // of their configurations and logs; its name is the topic's
	redis  []*testbed.RedisServer
	groups [][]*member
	all    []*member
	closed []func() error // called when it is closed
}

// member is one process of a fleet.
type member struct {
	role   string // reader or invalidator
	cmd    *exec.Cmd
	log    string // the file that it writes to
	client *admin.Client
	exited chan struct{} // closed when it has ended; err says how
	err    error
}

// settleWithin bounds every wait for a fleet.
const settleWithin = time.Minute

// newFleet starts the invalidators of a fleet, and returns when each has its share of the partitions. Each Redis holds
// the keys of all rows, and one more.
func (b *benchmark) newFleet(ctx context.Context, s shape) (_ *fleet, err error) {
	f := &fleet{shape: s, b: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.kafka, err = b.kafkaCluster(ctx); err != nil {
		return nil, err
	}
	if f.dir, err = os.MkdirTemp(b.dir, "fleet"); err != nil {
		return nil, err
	}
	for g := range s.groups {
		rdb, err := f.regionRedis(ctx, g)
		if err != nil {
			return nil, err
		}
		f.redis, f.groups = append(f.redis, rdb), append(f.groups, nil)
		for range s.invalidators {
			if _, err := f.invalidator(ctx, g); err != nil {
				return nil, err
			}
		}
	}
	for g := range f.groups {
		if err := f.shared(ctx, g); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// regionRedis returns the Redis of a group, filled: the one that all sections share for the first, a new one for
// others.
func (f *fleet) regionRedis(ctx context.Context, group int) (rdb *testbed.RedisServer, err error) {
	if group == 0 {
		rdb, err = f.b.redisServer(ctx)
	} else if rdb, err = testbed.StartRedis(ctx, testbed.Options{}); err == nil {
		f.closed = append(f.closed, rdb.Close)
	}
	if err != nil {
		return nil, err
	}
	return rdb, fillRedis(ctx, rdb, f.b.workload.rows+1)
}

// warm has all of it done once before it is measured: a broker makes the files of a partition when its first record
// comes, which takes as much CPU as tens of thousands of keys.
func (f *fleet) warm(ctx context.Context) error {
	db, err := f.b.mysql(ctx)
	if err != nil {
		return err
	}
	r, err := f.reader(ctx, "warm", db, "earliest", "none", "--until-caught-up")
	if err != nil {
		return err
	}
	if <-r.exited; r.err != nil {
		return r.failed()
	}
	if err := f.finished(ctx, f.b.workload.rows); err != nil {
		return err
	}
	for _, rdb := range f.redis {
		if err := fillRedis(ctx, rdb, f.b.workload.rows+1); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) topic() string { return filepath.Base(f.dir) }

// eventLog is the section of the configuration.
func (f *fleet) eventLog(group string) string {
	return fmt.Sprintf("eventlog: {kind: kafka, kafka: {brokers: [%s], topic: %q, group: %q, partitions: %d}}\n",
		strings.Join(f.kafka.Brokers(), ","), f.topic(), f.topic()+"."+group, f.partitions)
}

// reader starts a reader of a source.
func (f *fleet) reader(ctx context.Context, name string, db *testbed.Server, start, secondDelete string,
	flags ...string,
) (*member, error) {
	return f.start(ctx, "reader", f.eventLog("none")+fmt.Sprintf(`source: {name: %q, addresses: [%q], user: root, start: %q}
invalidator: {second_delete: %s}
mappings:
%s`, name, db.Addr, start, secondDelete, productKeys), flags...)
}

// invalidator starts one more member of a group.
func (f *fleet) invalidator(ctx context.Context, group int) (*member, error) {
	m, err := f.start(ctx, "invalidator", f.eventLog("region"+strconv.Itoa(group))+
		fmt.Sprintf("redis: {addresses: [%q]}\n", f.redis[group].Addr))
	if err == nil {
		f.groups[group] = append(f.groups[group], m)
	}
	return m, err
}

func (f *fleet) start(ctx context.Context, role, config string, flags ...string) (*member, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	listen := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	file := filepath.Join(f.dir, fmt.Sprintf("%s%d.yaml", role, len(f.all)))
	config += fmt.Sprintf("admin: {listen: %q}\nlog: {level: warn}\n", listen)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	m := &member{
		role: role, log: file + ".log", client: admin.NewClient("http://"+listen, "", nil),
		exited: make(chan struct{}),
	}
	out, err := os.Create(m.log)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own descriptor
	m.cmd = exec.CommandContext(ctx, f.b.freshet, append([]string{role, "-c", file}, flags...)...)
	m.cmd.Stdout, m.cmd.Stderr = out, out
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	f.all = append(f.all, m)
	go func() {
		defer close(m.exited)
		m.err = m.cmd.Wait()
	}()
	return m, nil
}

// close stops all processes and waits for them.
func (f *fleet) close() error {
	for _, m := range f.all {
		_ = m.cmd.Process.Signal(syscall.SIGTERM) // one that has ended already is fine
	}
	var errs []error
	for _, m := range f.all {
		<-m.exited
		if m.err != nil {
			errs = append(errs, m.failed())
		}
	}
	for _, f := range f.closed {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// end ends the last member of the first group, by a signal.
func (f *fleet) end(s os.Signal) error {
	g := f.groups[0]
	m := g[len(g)-1]
	err := m.cmd.Process.Signal(s)
	<-m.exited
	m.err = nil // that it was killed is no fault
	f.groups[0] = g[:len(g)-1]
	return err
}

func (m *member) failed() error {
	said, _ := os.ReadFile(m.log)
	return fmt.Errorf("freshet %s: %w\n%s", m.role, m.err, bytes.TrimSpace(said))
}

// memberStatus is what a fleet asks of GET /status.
type memberStatus struct {
	Source struct {
		Connected bool `json:"connected"`
	} `json:"source"`
	Partitions []struct {
		Records  int64 `json:"records_behind"`
		InFlight int64 `json:"in_flight"`
	} `json:"partitions"`
}

func (m *member) status(ctx context.Context) (s memberStatus, err error) {
	select {
	case <-m.exited:
		return s, m.failed()
	default:
	}
	raw, err := m.client.Status(ctx)
	if errors.Is(err, admin.ErrAway) {
		return s, nil // it has just been started
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// await asks every so often until done says so.
func await(ctx context.Context, what string, every time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleWithin,
		fmt.Errorf("%w: not %s within %s", errInvalid, what, settleWithin))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// streaming waits until readers read.
func (f *fleet) streaming(ctx context.Context, readers ...*member) error {
	return await(ctx, "streaming", 20*time.Millisecond, func() (bool, error) {
		for _, m := range readers {
			if s, err := m.status(ctx); err != nil || !s.Source.Connected {
				return false, err
			}
		}
		return true, nil
	})
}

// shared waits until the members of a group have their even shares of the partitions.
func (f *fleet) shared(ctx context.Context, group int) error {
	members := f.groups[group]
	return await(ctx, "shared out", 10*time.Millisecond, func() (bool, error) {
		sum := 0
		for _, m := range members {
			s, err := m.status(ctx)
			if err != nil || len(s.Partitions) < f.partitions/len(members) {
				return false, err
			}
			sum += len(s.Partitions)
		}
		return sum == f.partitions, nil
	})
}

// finished waits until nothing is left to do for any group, and looks whether the keys of so many rows are gone.
func (f *fleet) finished(ctx context.Context, rows int) error {
	err := await(ctx, "finished", 20*time.Millisecond, func() (bool, error) {
		sum := 0
		for _, m := range slices.Concat(f.groups...) {
			s, err := m.status(ctx)
			if err != nil {
				return false, err
			}
			for _, p := range s.Partitions {
				if p.Records+p.InFlight > 0 {
					return false, nil
				}
			}
			sum += len(s.Partitions)
		}
		return sum == f.partitions*len(f.groups), nil
	})
	for _, rdb := range f.redis {
		n, sizeErr := sizeOf(ctx, rdb.Client())
		if want := f.b.workload.rows + 1 - rows; sizeErr == nil && int(n) != want {
			sizeErr = fmt.Errorf("%w: %d keys are there, not %d", errInvalid, n, want)
		}
		err = errors.Join(err, sizeErr)
	}
	return err
}

// broker is the process that all records pass.
func (f *fleet) broker() int { return f.kafka.Broker(1).Pid() }

func pids(members ...*member) []int {
	var out []int
	for _, m := range members {
		out = append(out, m.cmd.Process.Pid)
	}
	return out
}

// stored returns how many bytes the topic takes in the broker: what came in, and what goes out to each group.
func (f *fleet) stored() (bytes int64, err error) {
	files, err := filepath.Glob(filepath.Join(f.kafka.Dir, "1", "data", f.topic()+"-*", "*.log"))
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return 0, err
		}
		bytes += info.Size()
	}
	return bytes, err
}
