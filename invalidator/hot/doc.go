// Package hot knows which keys and tables change most, for `freshet status --hot`, the page and a line in the log.
//
// It is next to the path of row changes: the invalidator shows it each batch that it fetched, once. Metrics cannot do
// this job, because no label may hold a key.
//
// # How
//
// A [Sketch] counts a sample of the keys in two Space-Saving summaries (Metwally, Agrawal, El Abbadi: Efficient
// computation of frequent and top-k elements in data streams, ICDT 2005), one for keys and one for tables. A summary
// has a fixed number m of counters; a name that has none takes over the smallest one, whose count becomes the new
// name's error. Space-Saving was chosen over HeavyKeeper, which is about as fast, because of its guarantee: each name
// with more than the share 1/m of everything that was counted is in the summary, whatever the rest looks like, and each
// count comes with the bound of its own error. HeavyKeeper loses a hot key with some probability, and does not know its
// error.
//
// Counts decay by exp(-t/Window): multiplying every count and error by one factor keeps the order and the guarantee, so
// the last minutes need neither a second summary nor a jump when one takes over from the other.
//
// # What it costs
//
// At most about [DefaultSamples] keys a second are looked at, each for one to three tenths of a microsecond: less than
// a thousandth of a core. Up to that rate nothing is left out; above it one key in so many is counted, for so many: at
// a million keys a second that is less than a nanosecond a key, compared with some 2 for only walking over them
// (BenchmarkCount). The gaps between two samples are random, because a row yields its keys in the same order each time,
// and an even step would always meet the same one. [Sketch.Count] allocates nothing.
//
// Memory is fixed when the sketch is made: about 300 bytes a counter, 400 KiB with the defaults. Of a name, the first
// [MaxName] bytes are kept, as a copy; longer ones are distinguished by a hash of the whole.
//
// All methods may be called by any goroutine. One lock is taken once a batch, and for as long as it takes to sort a
// thousand numbers when somebody looks.
package hot
