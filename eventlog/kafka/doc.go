// Package kafka is the event log in Kafka, for readers and invalidators that are processes of their own.
//
// Its packages are the parts that a record passes, in this order:
//
//	leader     one leader among the readers of a source, its term and its checkpoint topic
//	producer   batches to records, acknowledged by all in-sync replicas, in order for each key; marks alongside
//	record     the JSON documents
//	broker     connections, login, errors in sentences, topics
//	group      which partitions this process works on
//	consumer   records to batches, a loop for each partition; what the brokers have lost is noticed; marks
//	letters    parked keys and dead letters
//
// The reader's end of the log is [producer.Producer]; there is one for each term. The invalidators' end is [Log], which
// puts the last three together. Both ends in one process make an [eventlog.Log], and pass its conformance suite.
//
// What is guaranteed, and by what:
//
//   - A batch whose end is durable is acknowledged by all in-sync replicas, in every partition that it touches.
//   - What is fetched and not committed is delivered again, to the process that has the partition then. Commits
//     only rise, and only over finished work.
//   - Records that the brokers lost are noticed, and stop their partition: see [consumer.LostError]. Parked keys that
//     they lost are a doubt, and stop nothing.
//   - Records of an old leader, repeats and late duplicates do no harm: deletes can be repeated, and marks cover
//     records of their own and earlier terms only.
//
// Concurrency: [Log.Consume] owns all goroutines of the invalidators' end and waits for them.
package kafka
