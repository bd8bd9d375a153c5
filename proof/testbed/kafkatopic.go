package testbed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

const (
	// kafkaTimeout bounds a change of the cluster, until all brokers know of it.
	kafkaTimeout = 3 * time.Minute
	// kafkaAskTimeout bounds one question to one broker.
	kafkaAskTimeout = 2 * time.Second
)

// allTopics stands for every topic in a question. No topic is called so.
const allTopics = "*"

// clusterView is what one broker knows of its cluster.
type clusterView struct {
	metadata.Response
}

// kafkaAsk makes one request of one broker, over a connection of its own: the library's client
// answers from what it learned before, and chooses the broker.
func kafkaAsk(ctx context.Context, addr string, version int16, request protocol.Message) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, kafkaAskTimeout)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	deadline, _ := ctx.Deadline()
	if err := nc.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c := protocol.NewConn(nc, "testbed")
	c.SetVersions(map[protocol.ApiKey]int16{request.ApiKey(): version})
	return c.RoundTrip(request)
}

// kafkaMetadata asks one broker what it knows of the cluster and of the topics.
func kafkaMetadata(ctx context.Context, addr string, topics ...string) (*clusterView, error) {
	names := append([]string{}, topics...)
	if slices.Contains(topics, allTopics) {
		names = nil
	}
	m, err := kafkaAsk(ctx, addr, 8, &metadata.Request{TopicNames: names})
	if err != nil {
		return nil, err
	}
	return &clusterView{*m.(*metadata.Response)}, nil
}

// topic returns what is known of a topic; nil if it is not known.
func (v *clusterView) topic(name string) *metadata.ResponseTopic {
	for i := range v.Topics {
		if v.Topics[i].Name == name && v.Topics[i].ErrorCode == 0 {
			return &v.Topics[i]
		}
	}
	return nil
}

// answers is nil once the broker serves requests as a member of the cluster, the partitions
// that it can lead have leaders again, and it serves those that it leads.
func (b *KafkaBroker) answers(ctx context.Context) error {
	v, err := kafkaMetadata(ctx, b.internal, allTopics)
	if err != nil {
		return err
	}
	member := slices.ContainsFunc(v.Brokers, func(r metadata.ResponseBroker) bool { return int(r.NodeID) == b.ID })
	if !member || v.ControllerID < 0 {
		return errors.New("it is not a member of the cluster yet")
	}
	for _, topic := range v.Topics {
		for _, p := range topic.Partitions {
			if p.LeaderID < 0 && slices.Contains(p.IsrNodes, int32(b.ID)) {
				return fmt.Errorf("%s/%d has no leader", topic.Name, p.PartitionIndex)
			}
		}
	}
	return b.serves(ctx, v)
}

// serves is nil if the broker serves the partitions that it leads in the view, all or those
// given. A broker learns from the controller who leads, tells that to clients, and takes up its
// own part a moment later: until then it answers that it does not lead.
func (b *KafkaBroker) serves(ctx context.Context, v *clusterView, partitions ...int) error {
	req := &listoffsets.Request{ReplicaID: -1}
	for _, topic := range v.Topics {
		rt := listoffsets.RequestTopic{Topic: topic.Name}
		for _, p := range topic.Partitions {
			if int(p.LeaderID) == b.ID && (len(partitions) == 0 || slices.Contains(partitions, int(p.PartitionIndex))) {
				rt.Partitions = append(rt.Partitions,
					listoffsets.RequestPartition{
						Partition: p.PartitionIndex, CurrentLeaderEpoch: p.LeaderEpoch,
						Timestamp: kafka.LastOffset,
					})
			}
		}
		if len(rt.Partitions) > 0 {
			req.Topics = append(req.Topics, rt)
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	m, err := kafkaAsk(ctx, b.internal, 5, req)
	if err != nil {
		return err
	}
	for _, topic := range m.(*listoffsets.Response).Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("broker %d leads %s/%d: %w", b.ID, topic.Topic, p.Partition, kafka.Error(p.ErrorCode))
			}
		}
	}
	return nil
}

// everywhere asks all running brokers until cond is nil for each of them.
func (c *KafkaCluster) everywhere(ctx context.Context, topics []string, cond func(*clusterView) error) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	for _, b := range c.running() {
		err := poll(ctx, func() error {
			v, err := kafkaMetadata(ctx, b.internal, topics...)
			if err != nil {
				return err
			}
			return cond(v)
		})
		if err != nil {
			return fmt.Errorf("testbed: kafka broker %d: %w", b.ID, err)
		}
	}
	return nil
}

// running returns the brokers that run. Shared ones are taken to.
func (c *KafkaCluster) running() []*KafkaBroker {
	return slices.DeleteFunc(slices.Clone(c.brokers), func(b *KafkaBroker) bool { return b.argv != nil && b.Pid() == 0 })
}

// bootstrap returns the addresses of the running brokers for requests of our own.
func (c *KafkaCluster) bootstrap() (addrs []string) {
	for _, b := range c.running() {
		addrs = append(addrs, b.internal)
	}
	return addrs
}

// request makes a request of our own, with a client that knows nothing from before.
func (c *KafkaCluster) request(ctx context.Context, call func(context.Context, *kafka.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	transport := &kafka.Transport{ClientID: "testbed"}
	defer transport.CloseIdleConnections()
	return call(ctx, &kafka.Client{Addr: kafka.TCP(c.bootstrap()...), Transport: transport})
}

// admin is request for a test, which fails on an error. It works in a test's cleanup too.
func (c *KafkaCluster) admin(t testing.TB, what string, call func(context.Context, *kafka.Client) error) {
	t.Helper()
	if err := c.request(context.WithoutCancel(t.Context()), call); err != nil {
		t.Fatalf("testbed: kafka: %s: %v", what, err)
	}
}

// notTopic is what a topic's name cannot hold.
var notTopic = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// NewTopicName returns a name that no other test and no other run has; nothing is created. It
// serves for groups too.
func (c *KafkaCluster) NewTopicName(t testing.TB) string {
	name := notTopic.ReplaceAllString(t.Name(), "-")
	return name[:min(len(name), 80)] + "." + strings.ToLower(rand.Text()[:8])
}

// Topic creates a topic, with as many replicas as the cluster's topics have by default and
// settings like "retention.ms=1000", and returns its name when all running brokers know the
// leader of each partition, and it serves.
func (c *KafkaCluster) Topic(t testing.TB, name string, partitions int, config ...string) string {
	t.Helper()
	topic := kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: -1}
	for _, s := range config {
		key, value, _ := strings.Cut(s, "=")
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	c.admin(t, "create topic "+name, func(ctx context.Context, k *kafka.Client) error {
		res, err := k.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err == nil {
			err = res.Errors[name]
		}
		if err != nil {
			return err
		}
		return c.awaitPartitions(ctx, name, partitions)
	})
	return name
}

// awaitPartitions returns when all running brokers know a leader of each partition, which
// serves it.
func (c *KafkaCluster) awaitPartitions(ctx context.Context, name string, partitions int) error {
	err := c.everywhere(ctx, []string{name}, func(v *clusterView) error {
		topic := v.topic(name)
		if topic == nil || len(topic.Partitions) != partitions {
			return fmt.Errorf("topic %s is not known with %d partitions", name, partitions)
		}
		for _, p := range topic.Partitions {
			if p.LeaderID < 0 || p.ErrorCode != 0 {
				return fmt.Errorf("%s/%d has no leader", name, p.PartitionIndex)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.awaitServed(ctx, name)
}

// AddPartitions raises a topic's number of partitions to total, and returns when all running
// brokers know their leaders.
func (c *KafkaCluster) AddPartitions(t testing.TB, name string, total int) {
	t.Helper()
	c.admin(t, "add partitions to "+name, func(ctx context.Context, k *kafka.Client) error {
		res, err := k.CreatePartitions(ctx,
			&kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: name, Count: int32(total)}}})
		if err == nil {
			err = res.Errors[name]
		}
		if err != nil {
			return err
		}
		return c.awaitPartitions(ctx, name, total)
	})
}

// DeleteTopic deletes a topic, and returns when no running broker knows it any more.
func (c *KafkaCluster) DeleteTopic(t testing.TB, name string) {
	t.Helper()
	c.admin(t, "delete topic "+name, func(ctx context.Context, k *kafka.Client) error {
		res, err := k.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}})
		if err == nil {
			err = res.Errors[name]
		}
		if err != nil {
			return err
		}
		return c.everywhere(ctx, []string{name}, func(v *clusterView) error {
			if v.topic(name) != nil {
				return fmt.Errorf("topic %s is still known", name)
			}
			return nil
		})
	})
}

// Tool runs one of Kafka's command-line tools, given by its class, for example
// org.apache.kafka.tools.TopicCommand or
// org.apache.kafka.tools.consumer.group.ConsumerGroupCommand, and returns what it wrote to
// standard output. The option --bootstrap-server is added. It fails the test if the tool
// fails; some report errors in their output only. A tool takes about a second.
func (c *KafkaCluster) Tool(t testing.TB, class string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), kafkaTimeout)
	defer cancel()
	p, err := c.tools(ctx)
	Must(t, err)
	argv := append(slices.Clone(p.argv), class, "--bootstrap-server", strings.Join(c.bootstrap(), ","))
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("testbed: %s %s: %v\n%s%s", class, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
