// Package proxy stands between a client and a server and breaks what passes.
//
// [Proxy] is a plain TCP proxy: it can cut, reset, stall (half-open) and delay connections.
// [RESP] is one that understands Redis: it notes for each key when a command was sent and when
// its reply had passed to the client, and can lose the reply of a command that took effect.
// [Binlog] is one that understands MySQL's and MariaDB's replication: it counts the binlog
// events that pass and can stop the stream after any of them.
//
// Every proxy listens on its own loopback port, which stays its own while it is cut. No TLS:
// the two that look into the traffic need it in clear.
//
// A proxied connection has four goroutines, in each direction a reader and a writer with a
// bounded queue between them; the reader ends last and Close waits for all of them. All
// methods may be called by any goroutine.
package proxy
