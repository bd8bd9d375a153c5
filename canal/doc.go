// Package canal reads the committed row changes of a MySQL or MariaDB server from its binlog, and says from when on
// everybody can read them.
//
// It is the beginning of the path of a row change: a [Canal] takes a position from a [Checkpoint], reads on from there,
// and hands out what it has read in steps, one for each call of [Canal.Next]. Its subpackages do the parts that need no
// connection: binlog decodes events, charset turns text into utf8mb4, ddl reads statements, schema follows the
// definitions of tables.
//
// # Guarantees
//
// Nothing committed is missed. Only the end of a transaction is a position. A position that the source can not go on
// from ends [Canal.Next] with a [GapError] before anything is read: it is never skipped. Another canal goes on after
// it, if it is told to ([Options].Gap): at the end of the binlog, once it is durable that all keys are in doubt. An
// event that cannot be read ends it with an [EventError], unless it concerns the rows of one table only: those are
// passed over, once it is durable that the table is in doubt ([alarm.EventUndecodable]). So is an event over which the
// decoder panics, or the function that its rows are handed out to.
//
// Another server that answers is read from once all that has been handed on is visible there. Until then it is asked
// again, with an alarm for as long as it takes, for it may get it from the server before; and it is a doubt, for what
// its readers put into the cache meanwhile is older than what was deleted for good. The same server with less than
// before has lost it, which is a GapError. So is one that has begun its binlog again under the old names and numbers:
// when each file was begun is kept with the position.
//
// Every change has an [event.Version], made of where it stands in the binlog, so a replay gives the same one. After a
// lost connection, reading goes on after the last transaction that was handed out, and rows that were handed out
// before are left out, so that a transaction of any size makes progress even if the server drops us again and again
// because nobody asks for minutes. The epoch of the versions is raised, durably and before it is used, when
// another server answers or the binlog has begun again.
//
// A connection that is silent for three heartbeats is created again. While nobody asks, nothing is read and no clock
// runs.
//
// Memory is bounded by the largest single event, not by the transaction.
//
// # Visibility
//
// A row's event may come seconds before the row can be read (semi-synchronous replication waits in between). So once a
// heartbeat, and ten times as often while something waits for it, the source is asked what everybody can read: MySQL
// for gtid_executed; MariaDB for its snapshot position, since its GTID variables and SHOW MASTER STATUS run ahead;
// MySQL without GTIDs for the end of its binlog a heartbeat ago, and only while no commit waits for a replica, which is
// the best that can be had. What is handed over is queued, a requirement for each batch; an answer that holds the
// transactions of the requirements at the queue's head makes a mark with the version of the last of them. The mark goes
// straight to the function that [Canal.Watch] was given, next to the data. [Canal.Handover] returns, from the answers
// of the past, for how long a batch has been visible.
//
// # Concurrency
//
// A [Canal] starts no goroutine but one for a number of its own metrics, for which [Canal.Watch] waits. Two of its
// caller's use it. The one that calls [Canal.Next] reads and decodes, and owns all state of the stream. The other runs
// Watch, which has a connection of its own; nothing that holds up the first holds it up. They meet in the visibility
// queue, under its lock, which the first takes once for each batch and each time that it waits, never for a row.
// Several canals can be used at once: they share nothing.
package canal
