// Package consumer is the invalidators' side of the event log in Kafka: it reads the partitions that this process was
// given, and the marks next to them.
//
// Its place on the path: between the brokers and the invalidator's engine. package group says which partitions are
// ours and commits how far they are finished; package record says what a record means.
//
//	brokers --fetcher--> feed --Fetch--> engine --Commit--> group.Claim            for each partition
//	brokers --readMarks--> newest --Marks--> engine                               once
//
// A record becomes one [event.Batch], and its token is its offset. With each commit goes, as the commit's metadata,
// what was last seen of each source in the partition, so that the next owner can tell whether a record is missing:
//
//	freshet1;SOURCE,TERM,SEQ,EPOCH/FILE/POS/ROW;…      the most recent source first, at most 3072 bytes
//	freshet1;lost,LOSS,WHAT;SOURCE,…                   once the partition is stopped
//
// Package group adds on which Redis the work was done.
//
// What is guaranteed:
//
//   - Every record from the group's committed offset on is handed out in order, or the partition ends with a
//     [*LostError] that says what is gone: the offset lies before the log's beginning (retention) or after its end
//     (cut short, or created again), there is none although the log has been deleted from, or a record does not follow the
//     one before (a topic that was created again, or cut and grown past the commit). It is read no further then by any
//     member of the group (stopped.go), until [Options].SkipLost passes over the loss, and says so aloud.
//   - A record that is no record goes to the dead letters, whole and durably, before it is passed over. One of a newer
//     format holds up its partition, and no other, until a newer freshet reads it.
//   - Brokers that are away, leaders that move, topics that are missing for a while: tried again forever, for each
//     partition by itself. A broker that hangs holds up the partitions that it leads, and no others; trouble with a
//     partition holds up that one alone.
//   - One request asks a broker for all partitions that have room. While nothing happens that is one a second for each
//     broker, however many partitions there are; while much happens, a few that carry many partitions.
//   - Memory: for each partition at most three fetches of about 512 KiB each, unpacked (64 partitions: about 96 MiB),
//     and for each broker one answer of 2 MiB as the brokers store it; a record that is larger comes whole; what the
//     engine holds is bounded by its caps, beyond which it does not fetch. Of each source 128 moments for
//     [Consumer.FreshAsOf], and one mark.
//
// Of a leader that was deposed, records may still come: a record of a lower term than the highest that was seen of its
// source in the partition is handed out as a [event.Batch].Leftover, and the chain of the source, which is its
// successor's by then, is not moved by it. The highest term is in the commit's metadata, so it is known after a restart
// too; only where a topic has more sources than the metadata holds may a leftover of one that had been silent for long
// pass for news, and then the versions of its values sort it out. Its marks are passed on, and say nothing for
// FreshAsOf.
//
// # Goroutines
//
//	Consumer.Run       marks reader, marks deliverer, lag watch          the caller's
//	fetcher.run        one for each request under way                    end when their partitions have left
//	fetcher.restore    one for each partition in trouble, or just begun  ends with the assignment's context, or with Run
//	Fetch, Commit      the engine's fetcher and loop                     share pending, under the partition's lock
//
// Run waits for those of the fetcher. A request under way keeps no partition from leaving: once the assignment's
// context has ended, what comes of it is dropped.
//
// The fetcher's lock guards what is fetched ahead and who is in which request; it is held for a few instructions, for
// each request and each chunk. A partition's lock may be taken under it, not the other way round. That one is held for
// a few instructions, once for each record; the consumer's, when partitions come and go and when somebody looks.
package consumer
