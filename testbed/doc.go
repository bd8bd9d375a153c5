// Package testbed gives tests, the demo and the benchmarks real servers, and the faults to
// inject into them.
//
// Servers are plain processes on loopback: no container engine is needed. A server is looked
// for in this order: an address given by the user (only for callers which can live with a
// shared server, see [SharedMySQL]), a program on PATH, a program which this package
// installed earlier, and else it is installed (Debian and Ubuntu, as root or with sudo) into
// the cache directory, see [CacheDir]. A caller that needs a server never skips: when there
// is none, one line says what is missing and the ways to give it.
//
//	db := testbed.MySQL(t, "--binlog-row-metadata=FULL")
//	db.Exec(t, "create database shop", "create table shop.product (id int primary key)")
//	rdb := testbed.Redis(t)
//	rdb.Client().Set(ctx, "product:1", "old", 0)
//
// Every instance is private to its caller: it has its own port, its own data directory under
// the temporary directory, and it dies with the test, and with the test process even when that
// is killed. The port stays reserved among all test processes of this user until the
// instance is closed, so that a server can be killed and started again on it.
//
// Faults are methods: [Process.Kill], [Process.Stop], [Process.Start], [Process.Pause] and
// [Process.Resume]; [Server.HoldCommits] lets the binlog run ahead of what a SELECT sees. The
// package testbed/proxy stands between a client and a server to cut, stall and delay
// connections, to log or lose Redis replies, and to stop a binlog stream after any event.
//
// All types here may be used by several goroutines at once. Each process has one goroutine,
// which starts it and waits for it; Close waits for that goroutine.
package testbed
