// Package latency measures how long a change takes from its commit to its finished deletes: as a whole, which is
// freshet's headline, and stage by stage.
//
// It is next to the path of row changes: each stage is given the one [Stages] of its process and reports to it once a
// batch. The same numbers are shown as Prometheus histograms, since the start, and as percentiles of the last minute
// for `freshet status` and the page.
//
// The stages follow each other without gap or overlap:
//
//	commit ─ read ─▶ handed on ─ append ─▶ taken by it ─ fetch ─▶ fetched ─ delete ─▶ deleted ─ finish ─▶ finished
//
// Only `read` and the headline compare two machines' clocks (the source's and this one's), and where the log is Kafka
// so does `fetch` (the producer's and this one's). Commit times are as fine as the source gives them: microseconds from
// MySQL 8.0 on, whole seconds before that and with MariaDB, where both can be up to a second too long. A negative time
// counts as zero.
//
// All methods may be called by any goroutine.
package latency
