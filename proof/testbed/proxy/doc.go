// Package proxy stands between a client and a server and breaks what passes.
//
// [Proxy] is a plain TCP proxy: it can cut, reset, stall (half-open) and delay connections.
// [RESP] is one that understands Redis: it notes for each key when a command was sent and when
// its reply had passed to the client, and can lose the reply of a command that took effect.
// [Binlog] is one that understands MySQL's and MariaDB's replication: it counts the binlog
// events that pass and can stop the stream after any of them. [Kafka] is one that tells the
// requests of Kafka clients apart, and can lose one or its reply.
//
// Of a stalled connection nothing is lost yet: Stall(ToClient) lets requests take effect, and
// their replies are lost if Reset or Cut comes before Resume.
//
// Every proxy listens on its own loopback port, which stays its own while it is cut. No TLS
// where a proxy looks into the traffic; a plain one, and Kafka's, let it pass unread.
//
// A proxied connection has four goroutines, in each direction a reader and a writer with a
// bounded queue between them; the reader ends last and Close waits for all of them. All
// methods may be called by any goroutine.
package proxy
