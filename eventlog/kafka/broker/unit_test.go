package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/credential"
)

func TestFramesAreFollowedHoweverTheyAreCut(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var stream []byte
		n := rng.IntN(8)
		for range n {
			size := rng.IntN(300)
			stream = append(stream, 0, 0, byte(size>>8), byte(size))
			stream = append(stream, make([]byte, size)...)
		}
		stream = append(stream, []byte{0, 0, 1}[:rng.IntN(4)]...) // a head that is under way
		partly := len(stream) > 0 && n < 8
		var f frames
		for rest := stream; len(rest) > 0; {
			k := 1 + rng.IntN(min(len(rest), 50))
			f.feed(rest[:k])
			rest = rest[k:]
		}
		if f.ended != uint64(n) || partly && f.begun != f.ended && f.n == 0 {
			t.Fatalf("seed %d: %d of %d frames ended, %d begun", seed, f.ended, n, f.begun)
		}
	}
}

func TestAThrottledPartitionIsLeftAloneForAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count, err := newCounters(nil)
		must(t, err)
		c := &Client{count: count}
		here, elsewhere := quotaKey{"fetch", "t", 1}, quotaKey{"fetch", "t", 2}
		c.throttled(3*time.Second, here)
		began := time.Now()
		must(t, c.throttle.wait(t.Context(), elsewhere))
		if d := time.Since(began); d != 0 {
			t.Errorf("another partition waited for %v", d)
		}
		must(t, c.throttle.wait(t.Context(), here))
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("it waited for %v", d)
		}
		must(t, c.throttle.wait(t.Context(), here))
		if d := time.Since(began); d != 3*time.Second || len(c.throttle.until) != 0 {
			t.Errorf("it waited again, for %v; %d are kept", d, len(c.throttle.until))
		}
		c.throttled(time.Hour, here)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.throttle.wait(ctx, here); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it waited on: %v", err)
		}
		if got := testutil.ToFloat64(count.throttled.WithLabelValues("fetch")); got != 3603 {
			t.Errorf("%v s are counted", got)
		}
	})
}

func TestMetricsAreNamedAsPrometheusWants(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := client(t, Options{Brokers: []string{"127.0.0.1:1"}, Registerer: reg})
	problems, err := testutil.GatherAndLint(reg)
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	_, _ = c.Partitions(t.Context(), "t")
	if got := testutil.ToFloat64(c.count.errors.WithLabelValues("transient")); got != 1 {
		t.Errorf("%v errors are counted", got)
	}
	if _, err := New(Options{Brokers: []string{"127.0.0.1:1"}, Registerer: reg}); err == nil {
		t.Error("a second client registered the same metrics")
	}
}

func TestSentencesOfMissingRights(t *testing.T) {
	m, err := NewLogin("plain", "o'brien", credential.Text(secret))
	must(t, err)
	c := client(t, Options{Brokers: []string{"b1:9092", "b2:9092"}, Login: m})
	for _, k := range []struct {
		err  error
		need Need
		want string
	}{
		{
			kafka.TopicAuthorizationFailed,
			Need{"Write", "topic", "shop.x"},
			`kafka: try: user o'brien may not Write topic shop.x: add the ACL: kafka-acls.sh --bootstrap-server b1:9092 --command-config client.properties --add --allow-principal 'User:o'\''brien' --operation Write --topic shop.x`,
		},
		{
			kafka.GroupAuthorizationFailed,
			Need{"Read", "group", "g"},
			`kafka: try: user o'brien may not Read group g: add the ACL: kafka-acls.sh --bootstrap-server b1:9092 --command-config client.properties --add --allow-principal 'User:o'\''brien' --operation Read --group g`,
		},
		{
			kafka.ClusterAuthorizationFailed,
			Need{"Create", "cluster", ""},
			`kafka: try: user o'brien may not Create the cluster: add the ACL: kafka-acls.sh --bootstrap-server b1:9092 --command-config client.properties --add --allow-principal 'User:o'\''brien' --operation Create --cluster`,
		},
	} {
		if got := c.Explain(t.Context(), "try", k.err, k.need); got.Error() != k.want || Classify(got) != Denied {
			t.Errorf("%v\n%v\nwant\n%v", Classify(got), got, k.want)
		}
	}
	if err := c.Explain(t.Context(), "try", kafka.ErrGroupClosed, Need{}); Classify(err) != Ended {
		t.Errorf("a closed group: %v: %v", Classify(err), err)
	}
	if err := c.Explain(t.Context(), "try", nil, Need{}); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// silent is a broker that takes connections and never says a word.
func silent(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	t.Cleanup(func() {
		must(t, l.Close())
		<-done
	})
	return l.Addr().String()
}

func TestABrokerThatHangsInTheLoginIsGivenUp(t *testing.T) {
	m, err := NewLogin("scram-sha-256", "freshet", credential.Text(secret))
	must(t, err)
	c := client(t, Options{Brokers: []string{silent(t)}, Login: m, Timeout: 300 * time.Millisecond})
	_, err = c.Partitions(t.Context(), "t")
	if Classify(err) != Transient || !strings.Contains(err.Error(), "no answer in time") {
		t.Fatalf("%v: %v", Classify(err), err)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	c, err := New(Options{Brokers: []string{silent(t)}, Timeout: time.Minute})
	must(t, err)
	dialled, ended := make(chan struct{}, 100), make(chan error, 1)
	dial := c.o.Dial
	c.o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		defer func() { dialled <- struct{}{} }()
		return dial(ctx, network, address)
	}
	go func() {
		_, err := c.Fetch(t.Context(), "t", 0, 0, 1000, time.Minute)
		ended <- err
	}()
	<-dialled
	began := time.Now()
	must(t, c.Close())
	if err := <-ended; Classify(err) != Ended || !strings.Contains(err.Error(), "closed") {
		t.Errorf("%v: %v", Classify(err), err)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
	if _, err := c.Produce(t.Context(), "t", 0, Record{}); Classify(err) != Ended {
		t.Errorf("after Close: %v: %v", Classify(err), err)
	}
	must(t, c.Close())
}
