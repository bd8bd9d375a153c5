package testbed

import (
	"fmt"
	"path/filepath"
	"strings"
)

// kafkaSmall are the settings of every broker: start, fail over and clean up soon, keep little.
// Sessions of group members may be short; a member itself says how short. Who asks for a topic creates it unless it
// says otherwise, as with Kafka's defaults.
const kafkaSmall = `process.roles=broker,controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=INTERNAL
auto.create.topics.enable=true
delete.topic.enable=true
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
broker.heartbeat.interval.ms=200
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.backoff.ms=1000
log.initial.task.delay.ms=1000
log.retention.check.interval.ms=1000
`

// kafkaSettings are what the server.properties of a cluster's brokers have in common.
type kafkaSettings struct {
	cluster  string
	voters   []string // id@host:port
	security string   // lines about the listeners
	extra    []string
}

// file returns the broker's server.properties. Of two lines for one setting the last counts.
func (s kafkaSettings) file(b *KafkaBroker, data string) string {
	// A killed broker is replaced as leader, and let in again, when its session is over. With
	// several on few cores, a short one ends without a kill.
	replicas, inSync, session := 1, 1, 3000
	if len(s.voters) >= 3 {
		replicas, inSync, session = 3, 2, 5000
	}
	var f strings.Builder
	f.WriteString(kafkaSmall)
	fmt.Fprintf(&f, "node.id=%d\nlog.dirs=%s\n", b.ID, filepath.ToSlash(data))
	fmt.Fprintf(&f, "controller.quorum.voters=%s\n", strings.Join(s.voters, ","))
	fmt.Fprintf(&f, "listeners=CLIENT://%s,INTERNAL://%s,CONTROLLER://%s\n", b.listen, b.internal, b.held[2].Addr)
	fmt.Fprintf(&f, "advertised.listeners=CLIENT://%s,INTERNAL://%s\n", b.Addr, b.internal)
	f.WriteString(s.security)
	for _, topic := range []string{"offsets.topic", "transaction.state.log", "share.coordinator.state.topic"} {
		fmt.Fprintf(&f, "%s.replication.factor=%d\n", topic, replicas)
	}
	for _, topic := range []string{"transaction.state.log", "share.coordinator.state.topic"} {
		fmt.Fprintf(&f, "%s.min.isr=%d\n", topic, inSync)
	}
	fmt.Fprintf(&f, "broker.session.timeout.ms=%d\n", session)
	fmt.Fprintf(&f, "default.replication.factor=%d\nmin.insync.replicas=%d\n", replicas, inSync)
	for _, line := range s.extra {
		f.WriteString(line + "\n")
	}
	return f.String()
}
