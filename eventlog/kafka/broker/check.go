package broker

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

// Finding is something that [Client.Check] found wrong.
type Finding struct {
	// Fail: freshet would not work, or lose records, as it is. Otherwise it is a warning.
	Fail bool
	// What is wrong, and where.
	What string
	// Fix is the command that fixes it, or what to do; "" where there is none.
	Fix string
}

// checker collects findings.
type checker struct {
	*Client
	found []Finding
}

func (k *checker) fail(fix, what string, args ...any) {
	k.found = append(k.found, Finding{true, fmt.Sprintf(what, args...), fix})
}

func (k *checker) warn(fix, what string, args ...any) {
	k.found = append(k.found, Finding{false, fmt.Sprintf(what, args...), fix})
}

// report adds a request that failed.
func (k *checker) report(err error) {
	if err != nil {
		k.fail("", "%v", err)
	}
}

// Check looks at the brokers, at topics as they are, at our rights to them and to consumer groups, and returns what is
// wrong, brokers first; none if all is well. It changes nothing. A topic that does not exist is a warning if create
// allows [Client.Ensure] to create it, and the brokers would let us.
func (c *Client) Check(ctx context.Context, topics []Topic, create bool, groups ...string) []Finding {
	topics = distinct(topics)
	k := &checker{Client: c}
	k.groups(ctx, groups)
	missing, denied, err := c.missing(ctx, topics)
	if err != nil {
		k.report(err)
		return k.found
	}
	k.brokers(ctx)
	k.rights(ctx, topics)
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	within := func(some []Topic, t Topic) bool {
		return slices.ContainsFunc(some, func(o Topic) bool { return o.Name == t.Name })
	}
	for _, t := range topics {
		if within(denied, t) {
			k.fail(c.aclCommand("topic", t.Name, t.Access...), "kafka: user %s may not even see topic %s", c.User(), t.Name)
			continue
		}
		if within(missing, t) {
			k.missing(attempt, t, create)
			continue
		}
		k.topic(attempt, t)
	}
	return k.found
}

// missing looks whether a topic that does not exist would be created.
func (k *checker) missing(ctx context.Context, t Topic, create bool) {
	if !create {
		k.fail(k.CreateCommand(t), "kafka: topic %s does not exist, and eventlog.kafka.create_topics is false", t.Name)
		return
	}
	err := k.creation(ctx, []Topic{t}, true)[t.Name]
	if err == nil || Classify(err) == Transient { // the brokers are looked at elsewhere
		k.warn(k.CreateCommand(t), "kafka: topic %s does not exist; freshet creates it when it starts", t.Name)
		return
	}
	e := k.explain(ctx, "create topic "+t.Name, err, Need{"Create", "topic", t.Name})
	k.fail(k.CreateCommand(t), "%v", e)
}

// brokers connects to every broker that the cluster names, since any may lead a partition, and to those of the
// configuration, since any may be the one that is left.
func (k *checker) brokers(ctx context.Context) {
	res, err := k.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil {
		k.report(k.Explain(ctx, "ask for the brokers", err, Need{}))
		return
	}
	seen := map[string]bool{}
	for _, b := range res.Brokers {
		address := net.JoinHostPort(b.Host, strconv.Itoa(b.Port))
		seen[address] = true
		k.reach(ctx, address, "the cluster names this broker in its advertised.listeners")
		k.offsets(ctx, b.ID, address)
	}
	for _, address := range k.o.Brokers {
		if !seen[address] {
			k.reach(ctx, address, "correct eventlog.kafka.brokers, or start it")
		}
	}
}

func (k *checker) reach(ctx context.Context, address, fix string) {
	conn, err := k.dial(ctx, "tcp", address)
	if err != nil {
		k.fail(fix, "%v", err)
		return
	}
	_ = conn.Close()
}

// offsets warns of a broker that forgets a group's offsets before the topic forgets its records, or takes little with
// them. That takes the right to describe the cluster's settings; without it, it is not looked at.
func (k *checker) offsets(ctx context.Context, id int, address string) {
	const name, most = "offsets.retention.minutes", "offset.metadata.max.bytes"
	config, err := k.config(ctx, kafka.ResourceTypeBroker, strconv.Itoa(id), name, most)
	if err != nil {
		return
	}
	if bytes, err := strconv.Atoi(config[most]); err == nil && bytes < 4096 {
		k.warn(fmt.Sprintf("set %s=4096, Kafka's default, in the broker's server.properties", most),
			"kafka: broker %s takes %d bytes of metadata with an offset; what freshet writes there and does not fit is left out, so "+
				"that it may go unnoticed that records were lost, or that redis was another one for a while", address, bytes)
	}
	minutes, err := strconv.Atoi(config[name])
	if err == nil && time.Duration(minutes)*time.Minute < Retention {
		k.warn(fmt.Sprintf("set %s=%d or more in the broker's server.properties", name, int(Retention.Minutes())),
			"kafka: broker %s forgets the offsets of a group that is away for %v; what it had not processed by then counts as lost",
			address, time.Duration(minutes)*time.Minute)
	}
}

// config returns settings of a topic or broker.
func (k *checker) config(ctx context.Context, kind kafka.ResourceType, name string, names ...string) (map[string]string,
	error,
) {
	res, err := k.kafka.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: names}},
	})
	if err != nil {
		return nil, err
	}
	config := map[string]string{}
	for _, r := range res.Resources {
		if r.Error != nil {
			return nil, r.Error
		}
		for _, e := range r.ConfigEntries {
			config[e.ConfigName] = e.ConfigValue
		}
	}
	return config, nil
}

// topic looks at one topic.
func (k *checker) topic(ctx context.Context, t Topic) {
	res, err := k.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{t.Name}})
	if err != nil {
		k.report(k.Explain(ctx, "look at topic "+t.Name, err, Need{"Describe", "topic", t.Name}))
		return
	}
	partitions := res.Topics[0].Partitions
	if len(partitions) == 0 {
		return // its creation is under way
	}
	k.leaders(t, partitions)
	if err := k.settings(ctx, t, partitions); err != nil {
		k.warn("", "%v", err)
	}
}

// settings looks at what a topic was made with: at what stays wrong until somebody changes it. The error is that its
// configuration cannot be read, for which it takes a right that not everybody gives, and brokers that know the request.
func (k *checker) settings(ctx context.Context, t Topic, partitions []kafka.Partition) error {
	k.partitions(t, len(partitions))
	config, err := k.config(ctx, kafka.ResourceTypeTopic, t.Name, "cleanup.policy", "retention.ms", "retention.bytes",
		"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "message.timestamp.type")
	if err != nil {
		return k.explain(ctx, "read the settings of topic "+t.Name, err, Need{"DescribeConfigs", "topic", t.Name})
	}
	k.cleanup(t, config["cleanup.policy"])
	k.retention(t, config)
	k.durability(t, config, len(partitions[0].Replicas))
	if n, err := strconv.Atoi(config["max.message.bytes"]); err == nil && t.setting("max.message.bytes") != "" &&
		n < 1<<20 {
		k.fail(k.alterCommand(t.Name, "max.message.bytes="+strconv.Itoa(MinMessageBytes)),
			"kafka: topic %s takes records of up to %d bytes only; freshet's are up to 512 KiB, more with a huge key", t.Name, n)
	}
	return nil
}

// partitions looks at their number.
func (k *checker) partitions(t Topic, n int) {
	switch {
	case t.Role != RoleMain && n != 1:
		k.fail("delete it and let freshet create it, or create it with one partition: "+k.CreateCommand(t),
			"kafka: topic %s has %d partitions; its records keep their order only in one", t.Name, n)
	case n != t.Partitions:
		k.warn("", "kafka: topic %s has %d partitions, not %d as eventlog.kafka.partitions says; freshet uses those that "+
			"there are",
			t.Name, n, t.Partitions)
	}
}

// leaders looks for partitions without one, and for copies that lag.
func (k *checker) leaders(t Topic, partitions []kafka.Partition) {
	for _, p := range partitions {
		switch {
		case p.Leader.Host == "":
			k.fail("start the brokers that have a copy of it", "kafka: partition %s/%d has no leader", t.Name, p.ID)
		case len(p.Isr) < len(p.Replicas):
			k.warn("", "kafka: partition %s/%d: %d of its %d copies are up to date", t.Name, p.ID, len(p.Isr), len(p.Replicas))
		}
	}
}

// cleanup looks for a policy that would remove what is still needed.
func (k *checker) cleanup(t Topic, policy string) {
	want := t.setting("cleanup.policy")
	if policy == want {
		return
	}
	fix := k.alterCommand(t.Name, "cleanup.policy="+want)
	switch t.Role {
	case RoleMain, RoleRetry:
		k.fail(fix, "kafka: topic %s has cleanup.policy %s, which removes records before they are processed", t.Name, policy)
	case RoleMarks: // a source sends its mark again each second
		k.warn(fix, "kafka: topic %s has cleanup.policy %s, and so is longer than it need be", t.Name, policy)
	default:
		k.fail(fix, "kafka: topic %s has cleanup.policy %s, which removes records that still count once they are old",
			t.Name, policy)
	}
}

// retention looks for limits that would remove what was not processed yet.
func (k *checker) retention(t Topic, config map[string]string) {
	if t.setting("cleanup.policy") != "delete" {
		return
	}
	if n, err := strconv.ParseInt(config["retention.bytes"], 10, 64); err == nil && n >= 0 {
		k.warn(k.alterCommand(t.Name, "retention.bytes=-1"),
			"kafka: topic %s keeps %d bytes in each partition; a burst beyond them removes what was not processed yet", t.Name,
			n)
	}
	ms, err := strconv.ParseInt(config["retention.ms"], 10, 64)
	if err != nil || ms < 0 {
		return
	}
	keeps := time.Duration(ms) * time.Millisecond
	fix := k.alterCommand(t.Name, "retention.ms="+t.setting("retention.ms"))
	switch {
	case t.Role == RoleRetry:
		k.fail(fix, "kafka: topic %s removes keys that are parked for longer than %v", t.Name, keeps)
	case keeps < 24*time.Hour:
		k.warn(fix, "kafka: topic %s keeps records for %v; invalidators that are away for longer lose what they missed",
			t.Name, keeps)
	}
}

// durability looks for settings under which acknowledged records can be lost, or none can be acknowledged.
func (k *checker) durability(t Topic, config map[string]string, replicas int) {
	if config["unclean.leader.election.enable"] == "true" {
		k.fail(k.alterCommand(t.Name, "unclean.leader.election.enable=false"),
			"kafka: topic %s lets a replica lead that lacks acknowledged records, which are lost then", t.Name)
	}
	insync, err := strconv.Atoi(config["min.insync.replicas"])
	if err != nil {
		return
	}
	set := func(n int) string { return k.alterCommand(t.Name, "min.insync.replicas="+strconv.Itoa(n)) }
	switch {
	case replicas == 1 && insync == 1:
		k.warn("raise its replication factor to 3 (kafka-reassign-partitions.sh)",
			"kafka: topic %s has one copy only; the loss of a broker loses it", t.Name)
	case insync > replicas:
		k.fail(set(max(1, replicas-1)),
			"kafka: topic %s has %d copies and wants %d to acknowledge (min.insync.replicas), so nothing can be produced",
			t.Name, replicas, insync)
	case insync == replicas:
		k.warn(set(replicas-1), "kafka: topic %s has %d copies and wants all to acknowledge (min.insync.replicas), so one "+
			"broker's restart stops readers",
			t.Name, replicas)
	case replicas >= 3 && insync == 1:
		k.warn(set(2), "kafka: topic %s counts records as acknowledged that one broker has (min.insync.replicas=1); its "+
			"loss may lose them", t.Name)
	}
}
