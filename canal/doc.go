// Package canal reads the committed row changes of a MySQL or MariaDB server from its binlog, and says from when on
// everybody can read them.
//
// It is the beginning of the path of a row change: a [Canal] takes a position from a [Checkpoint], reads on from there,
// and hands each row of a mapped table, and the end of each transaction, to a [Sink]. Its subpackages do the parts that
// need no connection: binlog decodes events, charset turns text into utf8mb4, ddl reads statements, schema follows
// the definitions of tables.
//
// # Guarantees
//
// Nothing committed is missed. Only the end of a transaction is a position. A position that the source can not go on
// from ends [Canal.Run] with a [GapError] before anything is read: it is never skipped. An event that cannot be read
// ends it with an [EventError], unless it concerns the rows of one table only: those are passed over, once it is
// durable that the table is in doubt ([alarm.EventUndecodable]). So is an event over which the decoder or the sink
// panics.
//
// Another server that answers is read from once all that has been handed on is visible there. Until then it is asked
// again, with an alarm for as long as it takes, for it may get it from the server before; and it is a doubt, for what
// its readers put into the cache meanwhile is older than what was deleted for good. The same server with less than
// before has lost it, which is a GapError. So is one that has begun its binlog again under the old names and numbers:
// when each file was begun is kept with the position.
//
// Every change has an [event.Version], made of where it stands in the binlog, so a replay gives the same one. After a
// lost connection, reading goes on behind the last transaction that was handed to the sink, and rows that were handed
// over are left out, so that a transaction of any size makes progress even if the server drops us again and again
// because the sink takes nothing for minutes. The epoch of the versions is raised, durably and before it is used, when
// another server answers or the binlog has begun anew.
//
// A connection that is silent for three heartbeats is made anew. While the sink blocks, nothing is read and no clock
// runs.
//
// Memory is bounded by the largest single event, not by the transaction.
//
// # Visibility
//
// A row's event may come seconds before the row can be read (semi-synchronous replication waits in between). So once
// a heartbeat, and ten times as often while something waits for it, the source is asked what everybody can read:
// MySQL for gtid_executed; MariaDB for its snapshot position, since its GTID variables and SHOW MASTER STATUS run
// ahead; MySQL without GTIDs for the end of its binlog a heartbeat ago, and only while no commit waits for a
// replica, which is the best that can be had. What the sink hands over is queued, a claim for each batch; an answer
// that holds the transactions of the claims at the queue's head makes a mark with the version of the last of them.
// The mark goes straight to [Sink.Mark], beside the data. [Canal.Handover] returns, from the answers of the past, for
// how long a batch has been visible.
//
// # Concurrency
//
// [Canal.Run] has two goroutines. Its own is the loop: it reads, decodes and calls the sink, and owns all state of the
// stream. The heartbeat has a connection of its own, asks and calls [Sink.Mark]; nothing that holds up the loop holds
// it up. They meet in the visibility queue, under its lock, which the loop takes once for each batch and each time
// that it waits, never for a row. Run waits for the heartbeat before it returns.
package canal
