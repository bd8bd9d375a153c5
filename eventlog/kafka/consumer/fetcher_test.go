package consumer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// kilo is the size of the records, unless it matters.
const kilo = 1000

func TestAtRestOneRequestASecondGoesToEachBroker(t *testing.T) {
	onFake(t, func(b *bench) {
		var all []*assignedPartition
		for id := range b.leaders { // they come one by one
			p, _ := b.assignment(id)
			all = append(all, p)
			time.Sleep(130 * time.Millisecond)
		}
		rests := func() {
			b.Helper()
			time.Sleep(1500 * time.Millisecond) // a second, at the most, until they have come together
			synctest.Wait()
			b.requests()
			time.Sleep(10 * time.Second)
			count := map[int]int{}
			for _, a := range b.requests() {
				count[a.broker]++
				if len(a.partitions) != 3 {
					b.Errorf("broker %d is asked for partitions %v alone", a.broker, a.partitions)
				}
			}
			for id := 1; id <= 2; id++ {
				if n := count[id]; n < 9 || n > 11 {
					b.Errorf("%d requests to broker %d in ten seconds", n, id)
				}
			}
		}
		rests()
		// Records come to some of them; one is full for a while, so that it misses requests of the others.
		for i := range 300 {
			b.write(i%4, 1, 20*kilo)
			time.Sleep(3 * time.Millisecond)
			if b.drain(all[1+i%3]); i == 250 && all[0].feed.waiting < fetchBytes {
				b.Error("the first one has room left")
			}
		}
		for _, p := range all {
			b.drain(p)
		}
		rests()
	}, 1, 2, 1, 2, 1, 2)
}

func TestARecordComesAtOnce(t *testing.T) {
	onFake(t, func(b *bench) {
		all := b.claimAll()
		began := time.Now()
		for i := range 100 {
			b.write(i%3, 1, kilo)
			b.expect(all[i%3], 1)
		}
		// One that is assigned while the others wait for records does not wait for them to end.
		p, _ := b.assignment(1)
		b.expect(p, 33)
		// Nor does one that had no room.
		b.write(2, 3000, kilo)
		b.write(0, 1, kilo)
		b.expect(all[0], 1)
		b.expect(all[2], 3000)
		if d := time.Since(began); d != 0 {
			b.Errorf("it took %s", d)
		}
	}, 1, 1, 1)
}

// A request that waits is ended by the first record of any of its partitions, and the broker looks at all of them each
// time.
func TestWhenRecordsComeOneByOneFewPartitionsShareARequest(t *testing.T) {
	onFake(t, func(b *bench) {
		all := b.claimAll()
		one := func(i int) {
			b.write(i%len(all), 1, kilo)
			b.expect(all[i%len(all)], 1)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * poll) // they come together
		b.requests()
		for i := range 1200 {
			one(i)
			b.c.fetcher.mu.Lock()
			if n := len(b.c.fetcher.lanes[1].under); n > mostWaiting {
				b.Errorf("%d requests wait", n)
			}
			b.c.fetcher.mu.Unlock()
		}
		places, requests := 0, b.requests()
		for _, a := range requests {
			places += len(a.partitions)
		}
		if share := float64(places) / float64(len(requests)); share > 6 {
			b.Errorf("a request is for %.1f partitions", share)
		}
	}, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
}

func TestInACatchUpARequestCarriesManyPartitions(t *testing.T) {
	onFake(t, func(b *bench) {
		const each = 4000
		b.takes = 5 * time.Millisecond
		for id := range b.leaders {
			b.write(id, each, kilo)
		}
		all := b.claimAll()
		left := len(all) * each
		for i := 0; left > 0; i++ { // their worker takes a chunk a millisecond, of one after the other
			synctest.Wait()
			c, _ := b.c.fetcher.take(all[i%len(all)].feed)
			left -= len(c.records)
			time.Sleep(time.Millisecond)
		}
		requests, places := 0, 0
		for _, a := range b.requests() {
			requests++
			places += len(a.partitions)
		}
		if places < 3*requests {
			b.Errorf("%d requests for %d partitions in all", requests, places)
		}
	}, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
}

func TestABrokerThatHangsHoldsUpItsOwnPartitionsAlone(t *testing.T) {
	onFake(t, func(b *bench) {
		hung := make(chan struct{})
		b.hung[1] = hung
		all := b.claimAll()
		for id := range b.leaders {
			b.write(id, 1, kilo)
		}
		b.expect(all[1], 1)
		b.expect(all[0], 0)
		time.Sleep(3 * time.Second)
		b.write(3, 1, kilo)
		b.expect(all[3], 2)
		b.change(func() { delete(b.hung, 1) })
		close(hung)
		b.expect(all[0], 1)
		b.expect(all[2], 1)
	}, 1, 2, 1, 2)
}

// A partition that nobody takes from holds no more than it may, and the others go on meanwhile.
func TestAPartitionThatIsFullHoldsUpNoOther(t *testing.T) {
	onFake(t, func(b *bench) {
		for id := range b.leaders {
			b.write(id, 10_000, kilo)
		}
		all := b.claimAll()
		for range 20 {
			b.expect(all[1], 10_000)
			b.write(1, 10_000, kilo)
		}
		b.c.fetcher.mu.Lock()
		defer b.c.fetcher.mu.Unlock()
		if n := all[0].feed.waiting; n < fetchBytes || n > 3*fetchBytes {
			b.Errorf("%d bytes wait", n)
		}
	}, 1, 1)
}

// The broker fills its answer in the order in which it is asked, and up to a limit.
func TestNoPartitionStarvesBehindOthers(t *testing.T) {
	onFake(t, func(b *bench) {
		for id := range b.leaders {
			b.write(id, 5000, kilo)
		}
		b.takes = time.Millisecond
		all := b.claimAll()
		got := make([]int, len(all))
		for range 50 {
			for i, p := range all {
				synctest.Wait()
				c, _ := b.c.fetcher.take(p.feed)
				got[i] += len(c.records)
			}
			time.Sleep(time.Millisecond)
		}
		if least, most := slices.Min(got), slices.Max(got); least < most/3 {
			b.Errorf("handed out, by partition: %v", got)
		}
	}, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
}

func TestTroubleOfOnePartitionHoldsUpNoOther(t *testing.T) {
	onFake(t, func(b *bench) {
		b.locates = make(chan struct{})
		b.errs[0] = &broker.Error{Class: broker.Corrupt, What: "fetch", Err: errMoved}
		b.errs[1] = &broker.Error{Class: broker.OutOfRange, What: "fetch", Err: errMoved}
		all := b.claimAll()
		began := time.Now()
		for range 200 {
			b.write(2, 1, kilo)
			b.expect(all[2], 1)
			time.Sleep(5 * time.Millisecond)
		}
		if took := time.Since(began); took != time.Second {
			b.Errorf("it took %s", took)
		}
		b.write(0, 1, kilo)
		b.write(1, 1, kilo)
		b.change(func() { clear(b.errs) })
		close(b.locates)
		time.Sleep(time.Second)
		b.expect(all[0], 1)
		b.expect(all[1], 1)
	}, 1, 1, 1)
}

func TestAPartitionFollowsItsLeader(t *testing.T) {
	onFake(t, func(b *bench) {
		all := b.claimAll()
		b.write(0, 1, kilo)
		b.expect(all[0], 1)
		b.change(func() { b.leaders[0] = 2 })
		time.Sleep(time.Second)
		b.write(0, 1, kilo)
		b.expect(all[0], 1)
		time.Sleep(2 * time.Second)
		b.requests()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, a := range b.requests() {
			if a.broker == 1 && slices.Contains(a.partitions, 0) || a.broker == 2 && !slices.Contains(a.partitions, 0) {
				b.Errorf("broker %d is asked for %v", a.broker, a.partitions)
			}
		}
	}, 1, 1, 2)
}

// A broker that has only a replica of a partition answers as well, later than its leader.
func TestAPartitionDoesNotStayWithAFollower(t *testing.T) {
	onFake(t, func(b *bench) {
		b.follow = true
		all := b.claimAll()
		b.change(func() { b.leaders = []int{2, 1} }) // no error says so
		b.c.fetcher.lead([]int{2, 1})
		time.Sleep(2 * poll)
		b.requests()
		b.write(0, 1, kilo)
		b.expect(all[0], 1)
		for range 3 {
			time.Sleep(poll)
		}
		for _, a := range b.requests() {
			if len(a.partitions) != 1 || a.partitions[0] != 2-a.broker {
				b.Errorf("broker %d is asked for %v", a.broker, a.partitions)
			}
		}
	}, 1, 1)
}

func TestAPartitionThatIsRevokedDuringARequestLeavesAtOnce(t *testing.T) {
	onFake(t, func(b *bench) {
		b.hung[1] = make(chan struct{})
		p, revoke := b.assignment(0)
		q, revokeOther := b.assignment(1)
		synctest.Wait()
		revoke()
		synctest.Wait()
		if n := len(b.c.owned()); n != 1 {
			b.Fatalf("%d partitions are left", n)
		}
		again, _ := b.assignment(0) // as the next generation does
		b.write(0, 2, kilo)
		synctest.Wait()
		hung := b.hung[1]
		b.change(func() { delete(b.hung, 1) })
		close(hung)
		b.expect(again, 2)
		b.expect(p, 0) // what the old request brought of it is nobody's
		b.write(1, 1, kilo)
		b.expect(q, 1)
		// A request that nobody wants any more ends.
		b.change(func() { b.hung[1] = make(chan struct{}) })
		time.Sleep(2 * time.Second)
		revokeOther()
		b.c.end()
		b.c.loops.Wait()
	}, 1, 1)
}

// A partition that went away empty-handed, since others filled the answer, is not asked for more the next time.
func TestOnlyWhatCameSaysHowMuchToAskFor(t *testing.T) {
	onFake(t, func(b *bench) {
		p, _ := b.assignment(0)
		synctest.Wait()
		p.feed.ask = leastBytes
		p.feed.took(&broker.Fetched{Next: 0, HighWatermark: 10})
		if p.feed.ask != leastBytes {
			b.Errorf("%d bytes", p.feed.ask)
		}
	}, 1)
}
