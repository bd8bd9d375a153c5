// Package testbed gives tests, the demo and the benchmarks real servers, and the faults to
// inject into them.
//
// Servers are plain processes on loopback: no container engine is needed. A server is looked
// for in this order: an address given by the user (only for callers which can live with a
// shared server, see [SharedMySQL] and [SharedKafka]), a program on PATH, a program which this package
// installed earlier, and else it is installed (Debian and Ubuntu, as root or with sudo) into
// the cache directory, see [CacheDir]. A caller that needs a server never skips: when there
// is none, one line says what is missing and the ways to give it.
//
//	db := testbed.MySQL(t, "--binlog-row-metadata=FULL")
//	db.Exec(t, "create database shop", "create table shop.product (id int primary key)")
//	rdb := testbed.Redis(t)
//	rdb.Client().Set(ctx, "product:1", "old", 0)
//
// Every instance belongs to its caller alone: it has its own port, its own data directory (in memory for tests, where
// /dev/shm has six gigabytes free, else under the temporary directory), and it dies with the test, and with the test
// process even when that is killed. The port stays reserved among all test processes of this user until the
// instance is closed, so that a server can be killed and started again on it.
//
// In a package whose TestMain says [WithServers], tests have MySQL and MariaDB servers one after the other, each as
// if it had just been started: what cannot be undone for sure costs a start.
//
// # Kafka
//
// [Kafka] starts Apache Kafka in KRaft mode, each broker a Java process that is a controller
// too. It needs Java 17 or newer and takes Kafka's jars from KAFKA_HOME, if that is of the
// version asked for, or has Maven bring them. Tests that need a broker as such share one:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }
//
//	k := testbed.SharedKafka(t)
//	topic := k.Topic(t, k.NewTopicName(t), 12, "cleanup.policy=compact")
//
// Those that stop a broker, or need several, encryption, logins or access control, have a
// cluster of their own:
//
//	k := testbed.Kafka(t, testbed.KafkaOptions{Brokers: 3})
//	k.MoveLeader(t, topic, 0, 2)
//	k.Broker(2).Kill()
//	leader := k.AwaitLeader(t, topic, 0, 2)
//	k.Broker(2).Start(ctx)
//	k.AwaitInSync(t)
//
// Clients have their own listener, and the options are about that one. The brokers among
// themselves and the methods of [KafkaCluster] use another one, so that they work while the
// clients' listener is cut off, full or refuses logins. With [KafkaOptions].Proxied clients reach each
// broker through its [KafkaBroker].Proxy:
//
//	k.Broker(1).Proxy.OnRequest(func(r proxy.Request) proxy.Action {
//		if r.API == proxy.Produce && r.N == 3 {
//			return proxy.DropReply // appended, and the acknowledgement lost
//		}
//		return proxy.Forward
//	})
//
// A broker that was killed is replaced as leader, and let in again, when its session is over:
// after 3 s when it is alone, after 5 s in a cluster. One that was stopped hands over first.
//
// # Prometheus
//
// [Prometheus] starts a Prometheus server that scrapes and evaluates as a configuration says;
// [Promtool] checks rules.
//
// # Faults
//
// Faults are methods: [Process.Kill], [Process.Stop], [Process.Start], [Process.Pause] and
// [Process.Resume]; [Server.HoldCommits] lets the binlog run ahead of what a SELECT sees. The
// package testbed/proxy stands between a client and a server to cut, stall and delay
// connections, to log or lose Redis and Kafka replies, and to stop a binlog stream after any
// event.
//
// All types here may be used by several goroutines at once. Each process has one goroutine,
// which starts it and waits for it; Close waits for that goroutine.
package testbed
