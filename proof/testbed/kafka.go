package testbed

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed/internal/port"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// EnvKafka is the variable by which a user gives brokers of a running Kafka cluster, host:port
// separated by commas: plain connections, and every client may create and delete topics.
const EnvKafka = "FRESHET_TEST_KAFKA"

// KafkaVersions are the versions that the testbed installs, the default first.
func KafkaVersions() []string { return []string{"4.3.0", "4.1.0"} }

// KafkaOptions say how to start a Kafka cluster. The zero value is one private broker with
// plain connections.
type KafkaOptions struct {
	// Version is Apache Kafka's. Default: the first of KafkaVersions.
	Version string
	// Brokers is how many there are; each is a controller too. Default 1. With 3 and more,
	// topics have three replicas, and a write needs two of them (min.insync.replicas).
	Brokers int
	// Proxied puts a proxy in front of each broker, at the address that clients get:
	// whatever they send to a broker passes its proxy. What the brokers say to each other, and
	// the methods here, do not.
	Proxied bool
	// TLS encrypts what clients and brokers say, see KafkaCluster.TLS.
	TLS bool
	// ClientCerts has clients show a certificate that the cluster's authority signed. Who they
	// are is its subject: CN=freshet. Needs TLS.
	ClientCerts bool
	// Users have to log in, if there are any, with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512: by
	// name, their passwords.
	Users map[string]string
	// ACL has users do only what KafkaCluster.Allow allows them. The user admin may do all.
	// Needs Users or ClientCerts.
	ACL bool
	// Properties are lines added to each broker's server.properties after the defaults, so
	// that they win.
	Properties []string
	// JVM are flags added to Java's after the defaults. Those save start time, not work: for a
	// measurement of speed give -XX:TieredStopAtLevel=4.
	JVM []string
	// Shared uses the brokers that the environment gives, if it does, instead of private
	// ones. They cannot be stopped, and others may use them at the same time.
	Shared bool
	// Dir is where the cluster's directory is made. Default: the temporary directory, or for tests memory.
	Dir string
	// Log gets a line about what will be installed, before it is. Default: stderr.
	Log io.Writer
}

func (o KafkaOptions) installer() *installer { return Options{Log: o.Log}.installer() }

// KafkaCluster is a running Kafka cluster. The brokers' ids count from 1.
//
// Each broker has a listener for clients, as the options say, and another one, plain and open
// to everyone, for the brokers among themselves and for the methods here: those work whatever
// is done to the clients' listener.
type KafkaCluster struct {
	Version string            // 4.3.0; empty for shared brokers
	Dir     string            // the cluster's directory; empty for shared brokers
	TLS     *TLSFiles         // nil without TLS
	Users   map[string]string // those of the options

	brokers []*KafkaBroker
	tools   func(context.Context) (*program, error)
	owned   *instanceDir
}

// KafkaBroker is one broker of a cluster. It keeps its addresses and its data while it is down.
type KafkaBroker struct {
	*Process

	ID    int
	Addr  string       // host:port for clients; the proxy's, if there is one
	Proxy *proxy.Kafka // nil unless KafkaOptions.Proxied

	listen   string // host:port of the clients' listener, to which the proxy connects
	internal string // host:port for the other brokers and for us
	held     []*port.Reservation
}

// Kafka starts a private Kafka cluster for the test. It ends with the test.
func Kafka(t testing.TB, o ...KafkaOptions) *KafkaCluster {
	t.Helper()
	if len(o) == 0 {
		o = append(o, KafkaOptions{})
	}
	return forTest(t, StartKafka, o[0])
}

// SharedKafka is the cluster that FRESHET_TEST_KAFKA names, or a private broker. Take topics
// and groups that no other test has, see [KafkaCluster.NewTopicName].
func SharedKafka(t testing.TB) *KafkaCluster {
	t.Helper()
	return forTest(t, StartKafka, KafkaOptions{Shared: true})
}

// TestingM is a *testing.M.
type TestingM interface{ Run() int }

// WithKafka gives all tests of a package one broker instead of one each: SharedKafka finds it.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }
func WithKafka(m TestingM) TestingM { return withKafka{m} }

type withKafka struct{ tests TestingM }

// Run implements TestingM.
func (m withKafka) Run() int {
	c, err := StartKafka(context.Background(), KafkaOptions{Shared: true})
	if err == nil {
		err = os.Setenv(EnvKafka, strings.Join(c.Brokers(), ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.tests.Run()
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// StartKafka starts a Kafka cluster. Close ends it.
func StartKafka(ctx context.Context, o KafkaOptions) (*KafkaCluster, error) {
	if list := os.Getenv(EnvKafka); o.Shared && list != "" {
		return sharedKafka(ctx, o, strings.Split(list, ","))
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Version == "" {
		o.Version = KafkaVersions()[0]
	}
	in := o.installer()
	p, err := in.kafka(ctx, o.Version)
	if err != nil {
		return nil, err
	}
	template, err := dataTemplate(ctx, p)
	if err != nil {
		return nil, err
	}
	if p, err = in.withArchive(ctx, p, template); err != nil {
		return nil, err
	}
	return startKafka(ctx, p, template, o)
}

// startKafka starts a private cluster of a program.
func startKafka(ctx context.Context, p *program, template string, o KafkaOptions) (*KafkaCluster, error) {
	c := &KafkaCluster{
		Version: p.version, Users: o.Users,
		tools: func(context.Context) (*program, error) { return p, nil },
	}
	var err error
	if c.owned, err = newInstanceDir(o.Dir, p.name); err != nil {
		return nil, err
	}
	c.Dir = c.owned.path
	if err = c.prepare(p, template, o); err == nil {
		if err = c.Start(ctx); err == nil {
			err = c.addUsers(ctx, o.Users)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// prepare makes the brokers with their addresses and data, and starts none.
func (c *KafkaCluster) prepare(p *program, template string, o KafkaOptions) error {
	if o.TLS {
		var err error
		if c.TLS, err = newTLSFiles(filepath.Join(c.Dir, "tls")); err != nil {
			return err
		}
	}
	settings := kafkaSettings{cluster: kafkaUUID(), security: o.securitySettings(c.TLS), extra: o.Properties}
	for id := range max(1, o.Brokers) {
		b := &KafkaBroker{ID: id + 1, Process: &Process{name: p.name}}
		c.brokers = append(c.brokers, b)
		for range 3 { // clients, internal, controller
			held, err := port.Reserve()
			if err != nil {
				return err
			}
			b.held = append(b.held, held)
		}
		b.listen, b.internal = b.held[0].Addr, b.held[1].Addr
		b.Addr = b.listen
		if o.Proxied {
			var err error
			if b.Proxy, err = proxy.NewKafka(b.listen); err != nil {
				return err
			}
			b.Addr = b.Proxy.Addr()
		}
		settings.voters = append(settings.voters, strconv.Itoa(b.ID)+"@"+b.held[2].Addr)
	}
	for _, b := range c.brokers {
		if err := c.prepareBroker(b, p, template, settings, o.JVM); err != nil {
			return fmt.Errorf("testbed: kafka broker %d: %w", b.ID, err)
		}
	}
	return nil
}

func (c *KafkaCluster) prepareBroker(b *KafkaBroker, p *program, template string, settings kafkaSettings,
	jvm []string,
) error {
	dir := filepath.Join(c.Dir, strconv.Itoa(b.ID))
	data := filepath.Join(dir, "data")
	if err := copyTree(data, template); err != nil {
		return err
	}
	meta := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", settings.cluster, b.ID, kafkaUUID())
	if err := os.WriteFile(filepath.Join(data, "meta.properties"), []byte(meta), 0o644); err != nil {
		return err
	}
	file := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(file, []byte(settings.file(b, data)), 0o600); err != nil {
		return err
	}
	b.Process.dir, b.logPath, b.ready = dir, filepath.Join(dir, "log"), b.answers
	b.argv = append(append(slices.Clone(p.argv), jvm...), "kafka.Kafka", file)
	return nil
}

// kafkaUUID returns a new id as Kafka writes them.
func kafkaUUID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f           // its text must not begin with a dash
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// sharedKafka connects to the cluster that the environment names.
func sharedKafka(ctx context.Context, o KafkaOptions, addrs []string) (*KafkaCluster, error) {
	c := &KafkaCluster{tools: func(ctx context.Context) (*program, error) {
		return o.installer().kafka(ctx, KafkaVersions()[0])
	}}
	var errs []error
	for _, addr := range addrs {
		m, err := kafkaMetadata(ctx, addr)
		// On a busy machine it may not have said for a moment that it is there, and then none is listed.
		for give := time.Now().Add(time.Minute); err == nil && len(m.Brokers) == 0 && time.Now().Before(give); {
			time.Sleep(100 * time.Millisecond)
			m, err = kafkaMetadata(ctx, addr)
		}
		if err == nil && len(m.Brokers) == 0 {
			err = errors.New("it lists no broker")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("testbed: shared Kafka %s: %w", addr, err))
			continue
		}
		for _, b := range m.Brokers {
			a := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
			c.brokers = append(c.brokers,
				&KafkaBroker{ID: int(b.NodeID), Addr: a, internal: a, Process: &Process{name: "kafka"}})
		}
		slices.SortFunc(c.brokers, func(a, b *KafkaBroker) int { return a.ID - b.ID })
		return c, nil
	}
	return nil, errors.Join(errs...)
}

// Brokers returns the addresses for clients, host:port each, of all brokers, running or not.
func (c *KafkaCluster) Brokers() []string {
	addrs := make([]string, len(c.brokers))
	for i, b := range c.brokers {
		addrs[i] = b.Addr
	}
	return addrs
}

// Broker returns the broker with the id, as [KafkaCluster.Leader] gives it. Private brokers
// have the ids 1, 2, 3. It is nil if there is none.
func (c *KafkaCluster) Broker(id int) *KafkaBroker {
	for _, b := range c.brokers {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// Start starts the brokers that do not run, all at once: a controller answers only when most
// of them do. It returns when every broker knows all of them.
func (c *KafkaCluster) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(c.brokers))
	for i, b := range c.brokers {
		wg.Go(func() { errs[i] = b.Start(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.everywhere(ctx, nil, func(m *clusterView) error {
		if len(m.Brokers) < len(c.brokers) {
			return fmt.Errorf("%d brokers of %d are known", len(m.Brokers), len(c.brokers))
		}
		return nil
	})
}

// LogTail returns the last lines of every broker's output.
func (c *KafkaCluster) LogTail() string {
	var s strings.Builder
	for _, b := range c.brokers {
		fmt.Fprintf(&s, "broker %d:\n%s\n", b.ID, b.LogTail())
	}
	return s.String()
}

// Close kills the brokers, gives their ports back and removes their directory. Shared brokers
// are left as they are.
func (c *KafkaCluster) Close() error {
	if c.owned == nil {
		return nil
	}
	var errs []error
	for _, b := range c.brokers {
		if b.Proxy != nil {
			b.Proxy.Close()
		}
		if b.argv != nil {
			errs = append(errs, b.Kill())
		}
		for _, held := range b.held {
			held.Release()
		}
	}
	return errors.Join(append(errs, c.owned.remove())...)
}
