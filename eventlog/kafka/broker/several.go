package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// ProduceTo is what to append to a partition: records, one at least, in one batch.
type ProduceTo struct {
	Partition int
	Records   []Record
}

// ProduceResult is the offset of the first record of a batch, or why it has none.
type ProduceResult struct {
	Offset int64
	Err    error
}

// FetchFrom is where to fetch from in a partition, and about how many bytes at most.
type FetchFrom struct {
	Partition int
	Offset    int64
	MaxBytes  int
}

// FetchResult is what one partition holds, or why that is not known.
type FetchResult struct {
	Fetched
	Err error
}

// ProduceAll appends a batch to each of some partitions in one request, to the broker that leads the first of them, and
// returns the results in the same order once all in-sync replicas have all of them. A record without a time has that of
// the call. An error of the whole request is that of each partition. It leaves open whether the records were appended,
// unless [Classify] says otherwise; what the records lie in may be used again all the same. Of a partition that another
// broker leads, the error is [Transient], and [Client.Leaders] knows better then.
//
// Before it sends, it waits as long as the broker has asked for because of a quota. No partition may be named twice.
func (c *Client) ProduceAll(ctx context.Context, topic string, to []ProduceTo) []ProduceResult {
	results := make([]ProduceResult, len(to))
	failed := func(to []ProduceTo, results []ProduceResult, err error) {
		first := to[0].Partition
		err = c.failed(ctx, "produce to "+several(topic, first, len(to)), topic, first, err, Need{"Write", "topic", topic})
		for i := range results {
			results[i].Err = err
		}
	}
	places := make([]quotaKey, len(to))
	for i, t := range to {
		places[i] = quotaKey{"produce", topic, t.Partition}
	}
	if err := c.throttle.wait(ctx, places...); err != nil {
		failed(to, results, err)
		return results
	}
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.produce(attempt, topic, to)
	if err != nil {
		failed(to, results, err)
		return results
	}
	c.throttled(res.throttle, places...)
	for i, part := range res.parts {
		if part.code != 0 {
			failed(to[i:i+1], results[i:i+1], part.code)
			continue
		}
		results[i].Offset = part.offset
	}
	return results
}

// produce packs records into a request and sends it. A packer is back before anything is sent, for an attempt that is
// given up may still be under way; so may its request, whose memory is used again only if it was answered.
func (c *Client) produce(ctx context.Context, topic string, to []ProduceTo) (*produced, error) {
	p := &produce{topic: topic, partitions: make([]int32, len(to))}
	for i := range to {
		p.partitions[i] = int32(to[i].Partition)
	}
	var ok bool
	if p.request, ok = c.requests.Get().(*request); !ok {
		p.request = &request{}
	}
	// The broker gives up waiting for replicas before we do, and says for which partitions.
	p.begin(c.o.ClientID, c.o.Timeout*8/10)
	if err := c.pack(p.request, to); err != nil {
		return nil, err
	}
	msg, err := c.transport.RoundTrip(ctx, c.kafka.Addr, p)
	if err != nil {
		return nil, err
	}
	if cap(p.request.b) <= keptRequest {
		c.requests.Put(p.request)
	}
	return msg.(*produced), nil
}

// keptRequest bounds the memory of a request that is kept for the next.
const keptRequest = 2 << 20

// pack appends the batches to a request.
func (c *Client) pack(w *request, to []ProduceTo) (err error) {
	p, ok := c.packers.Get().(*packer)
	if !ok {
		p = &packer{}
	}
	defer c.packers.Put(p)
	for _, t := range to {
		w.i32(int32(t.Partition))
		size := len(w.b)
		w.i32(0)
		if w.b, err = p.pack(w.b, t.Records, c.o.Compression); err != nil {
			return err
		}
		binary.BigEndian.PutUint32(w.b[size:], uint32(len(w.b)-size-4))
	}
	return nil
}

// FetchAll returns what some partitions hold, in one request to the broker that leads the first of them, waiting for up
// to wait while none of them holds anything. The results are in the same order; an error of the whole request is that
// of each. A partition that another broker leads is answered from a replica if the one that was asked has one
// (KIP-392), a little later than its leader would; else its error is [Transient], and [Client.Leaders] knows better
// then.
//
// The broker fills the answer in the order of from, up to about maxBytes in all: those at the end may go away
// empty-handed although they hold something, and so does one whose next batch does not fit. Who calls puts them first
// the next time: the first that holds anything gets a batch of whatever size.
//
// Before it asks, it waits as long as the broker has asked for because of a quota. No partition may be named twice.
// Records of different partitions share no memory.
// Source: KIP-74, and https://kafka.apache.org/documentation/#consumerconfigs_fetch.max.bytes.
func (c *Client) FetchAll(ctx context.Context, topic string, from []FetchFrom, maxBytes int,
	wait time.Duration,
) []FetchResult {
	results := make([]FetchResult, len(from))
	failed := func(from []FetchFrom, results []FetchResult, err error) {
		first := from[0].Partition
		what := "fetch " + several(topic, first, len(from))
		if len(from) == 1 {
			what += fmt.Sprintf(" at offset %d", from[0].Offset)
		}
		err = c.failed(ctx, what, topic, first, err, Need{"Read", "topic", topic})
		for i := range results {
			results[i].Err = err
		}
	}
	res, err := c.fetch(ctx, &fetch{
		topic: topic, from: from, maxBytes: int32(maxBytes), wait: wait, clientID: c.o.ClientID,
	})
	if err != nil {
		failed(from, results, err)
		return results
	}
	u, ok := c.unpackers.Get().(*unpacker)
	if !ok {
		u = &unpacker{}
	}
	defer c.unpackers.Put(u)
	for i, part := range res.parts {
		f := Fetched{Next: from[i].Offset, HighWatermark: part.highWatermark, LogStart: part.logStart}
		err := error(part.code)
		if part.code == 0 {
			err = u.unpack(&f, part.batches, f.Next)
		}
		if err != nil {
			failed(from[i:i+1], results[i:i+1], err)
			continue
		}
		results[i].Fetched = f
	}
	return results
}

// fetch asks until the broker does not withhold its answer because of a quota.
func (c *Client) fetch(ctx context.Context, req *fetch) (*fetched, error) {
	places := make([]quotaKey, len(req.from))
	for i, f := range req.from {
		places[i] = quotaKey{"fetch", req.topic, f.Partition}
	}
	for {
		if err := c.throttle.wait(ctx, places...); err != nil {
			return nil, err
		}
		attempt, cancel := context.WithTimeout(ctx, c.o.Timeout+req.wait)
		msg, err := c.transport.RoundTrip(attempt, c.kafka.Addr, req)
		cancel()
		if err != nil {
			return nil, err
		}
		res := msg.(*fetched)
		c.throttled(res.throttle, places...)
		if !res.withheld {
			return res, nil
		}
	}
}

// several names partitions, the first of n, for people.
func several(topic string, partition, n int) string {
	if n == 1 {
		return fmt.Sprintf("%s/%d", topic, partition)
	}
	return fmt.Sprintf("%s/%d and %d more partitions", topic, partition, n-1)
}
