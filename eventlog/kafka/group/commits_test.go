package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// coordinator is a broker's side of commits: it answers each request by the next of its answers, with success when
// there is none left, and remembers what it took.
type coordinator struct {
	answers []func(partition int32) kafka.Error // lostReply: the request takes effect and its answer never comes
	stored  []string
	most    int // how much metadata it takes, in bytes; below 0: any
	// generations are those for which something was sent.
	generations []int32
}

const lostReply = kafka.Error(-99)

func (c *coordinator) RoundTrip(_ context.Context, _ net.Addr, r kafka.Request) (kafka.Response, error) {
	req := r.(*offsetcommit.Request)
	c.generations = append(c.generations, req.GenerationID)
	answer := func(int32) kafka.Error { return 0 }
	if len(c.answers) > 0 {
		answer, c.answers = c.answers[0], c.answers[1:]
	}
	res := &offsetcommit.Response{}
	for _, t := range req.Topics {
		out := offsetcommit.ResponseTopic{Name: t.Name}
		for _, p := range t.Partitions {
			code := answer(p.PartitionIndex)
			if c.most >= 0 && len(p.CommittedMetadata) > c.most {
				code = kafka.OffsetMetadataTooLarge
			}
			if code == 0 || code == lostReply {
				c.stored = append(c.stored, fmt.Sprintf("%d at %d %q", p.PartitionIndex, p.CommittedOffset, p.CommittedMetadata))
			}
			if code == lostReply {
				return nil, errors.New("connection reset")
			}
			out.Partitions = append(out.Partitions,
				offsetcommit.ResponsePartition{PartitionIndex: p.PartitionIndex, ErrorCode: int16(code)})
		}
		res.Topics = append(res.Topics, out)
	}
	slices.Sort(c.stored)
	return res, nil
}

func always(code kafka.Error) func(int32) kafka.Error { return func(int32) kafka.Error { return code } }

// generationOf returns commits with assignments of partitions 0 and 1, both committed at 10.
func generationOf(t *testing.T, c *coordinator) (*commits, []*Assignment, *strings.Builder) {
	var out strings.Builder
	commits := &commits{
		client: &kafka.Client{Addr: kafka.TCP("x:1"), Transport: c}, group: "g", timeout: time.Second,
		log: slog.New(slog.NewTextHandler(&out, nil)), assignments: map[*Assignment]*progress{}, more: make(chan struct{}, 1),
		sending: make(chan struct{}, 1),
		explain: func(_ context.Context, err error) error { return err }, on: func() string { return "" },
	}
	commits.attempts.Reporter = commits.newReporter()
	assignments := []*Assignment{{Topic: "t", Partition: 0, Offset: 10}, {Topic: "t", Partition: 1, Offset: 10}}
	for _, assignment := range assignments {
		commits.add(assignment)
	}
	return commits, assignments, &out
}

func (c *coordinator) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(c.stored, want) {
		t.Fatalf("stored %q, want %q", c.stored, want)
	}
}

func TestCommitsAreGatheredAndOnlyRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{most: -1}
		commits, assignments, _ := generationOf(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { commits.run(ctx); close(done) }()
		for o := range int64(30) {
			assignments[0].Commit(o, fmt.Sprint("m", o))
		}
		assignments[0].Commit(12, "lower")
		assignments[1].Commit(9, "below what was committed")
		assignments[1].Commit(-1, "none")
		time.Sleep(every + 1)
		synctest.Wait()
		c.expect(t, `0 at 29 "m29"`)
		time.Sleep(10 * every)
		synctest.Wait()
		c.expect(t, `0 at 29 "m29"`) // once
		assignments[1].Rewind(3, "created again")
		cancel()
		<-done
		commits.flush(t.Context())
		c.expect(t, `0 at 29 "m29"`, `1 at 3 "created again"`)
		assignments[0].Commit(50, "after the end")
		commits.flush(t.Context())
		c.expect(t, `0 at 29 "m29"`, `1 at 3 "created again"`)
	})
}

// Commits that keep coming must not put off the request that gathers them, nor may one that failed wait for the next.
func TestCommitsAreSentWhileMoreCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{most: -1, answers: []func(int32) kafka.Error{always(kafka.NotCoordinatorForGroup)}}
		commits, assignments, _ := generationOf(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { commits.run(ctx); close(done) }()
		assignments[1].Commit(20, "after a failure")
		time.Sleep(2*every + 1)
		synctest.Wait()
		c.expect(t, `1 at 20 "after a failure"`)
		c.stored = nil
		for o := range int64(20) {
			assignments[0].Commit(100+o, "")
			time.Sleep(every / 5)
		}
		time.Sleep(every + 1)
		synctest.Wait()
		if n := len(c.stored); n < 4 || n > 5 || c.stored[n-1] != `0 at 119 ""` {
			t.Errorf("20 commits in %s were sent as %q", 4*every, c.stored)
		}
		cancel()
		<-done
	})
}

func TestACommitThatFailsForNowIsMadeAgain(t *testing.T) {
	for _, code := range []kafka.Error{
		kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup, kafka.GroupLoadInProgress,
		kafka.RebalanceInProgress, kafka.RequestTimedOut, lostReply,
	} {
		for _, times := range []int{2, 100} {
			synctest.Test(t, func(t *testing.T) {
				c := &coordinator{most: -1}
				for range times {
					c.answers = append(c.answers, always(code))
				}
				commits, assignments, log := generationOf(t, c)
				assignments[0].Commit(20, "")
				commits.flush(t.Context())
				if len(c.stored) == 0 || c.stored[len(c.stored)-1] != `0 at 20 ""` {
					t.Fatalf("%v: stored %q", code, c.stored)
				}
				// What passes within a moment is not worth saying, what lasts is said once.
				want := map[int]int{2: 0, 100: 1}[times]
				if n := strings.Count(log.String(), "level=WARN"); n != want ||
					strings.Count(log.String(), "committed again") != want {
					t.Errorf("%v: %d warnings, want %d and its end:\n%s", code, n, want, log)
				}
			})
		}
	}
}

func TestOnlyThePartitionThatFailedIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{most: -1, answers: []func(int32) kafka.Error{func(p int32) kafka.Error {
			if p == 1 {
				return kafka.GroupLoadInProgress
			}
			return 0
		}}}
		commits, assignments, _ := generationOf(t, c)
		assignments[0].Commit(20, "")
		assignments[1].Commit(21, "")
		commits.flush(t.Context())
		c.expect(t, `0 at 20 ""`, `1 at 21 ""`)
	})
}

func TestNothingIsCommittedForAnotherGeneration(t *testing.T) {
	for _, code := range []kafka.Error{kafka.IllegalGeneration, kafka.UnknownMemberId, kafka.FencedInstanceID} {
		synctest.Test(t, func(t *testing.T) {
			c := &coordinator{most: -1, answers: []func(int32) kafka.Error{always(code)}}
			commits, assignments, _ := generationOf(t, c)
			assignments[0].Commit(20, "")
			commits.flush(t.Context())
			assignments[0].Commit(30, "")
			commits.flush(t.Context())
			c.expect(t)
		})
	}
}

// The process that takes a partition over finds out from it what may be missing.
func TestACommitSaysOnWhichRedisTheWorkWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{most: -1}
		commits, assignments, _ := generationOf(t, c)
		on := "R1"
		commits.on = func() string { return on }
		start := time.Now().UnixMilli()
		said := func(at int64, what, redis string, after time.Duration) string {
			return fmt.Sprintf("0 at %d %q", at, fmt.Sprintf("%s;redis,%s,%d", what, redis, start+after.Milliseconds()))
		}
		expect := func(want ...string) {
			t.Helper()
			c.expect(t, want...)
			c.stored = nil
		}
		taken := assignments[0]
		commits.assignments[taken].on = broker.WorkedOn{Redis: "R0", At: time.UnixMilli(start)}
		taken.Commit(20, "a")
		commits.send(t.Context())
		expect(said(20, "a", "R0", 0)) // it is not known yet what R1 lacks
		time.Sleep(time.Second)
		taken.TakeOver()
		if len(commits.more) != 1 {
			t.Error("nobody is woken to say it")
		}
		commits.send(t.Context())
		expect(said(20, "a", "R1", time.Second))
		time.Sleep(time.Second)
		<-commits.more
		taken.TakeOver()
		commits.send(t.Context())
		expect() // it has been said
		on = ""
		taken.Commit(21, "b")
		commits.send(t.Context())
		expect(said(21, "b", "R1", time.Second)) // as it was
		on = "R2"
		c.answers = append(c.answers, func(int32) kafka.Error {
			on = "R3" // while the request is under way
			return 0
		})
		taken.TakeOver()
		commits.send(t.Context())
		expect(said(21, "b", "R2", 2*time.Second))
		taken.TakeOver()
		c.answers = append(c.answers, always(kafka.OffsetMetadataTooLarge))
		taken.Commit(22, "first;more and more")
		commits.send(t.Context())
		commits.send(t.Context())
		expect(said(22, "first", "R3", 2*time.Second))
		assignments[1].TakeOver()
		commits.send(t.Context())
		expect(fmt.Sprintf("1 at 10 %q", fmt.Sprintf(";redis,R3,%d", start+2000)))
		none := &Assignment{Topic: "t", Partition: 2, Offset: -1}
		commits.add(none)
		none.TakeOver()
		commits.send(t.Context())
		expect() // there is nothing to commit
	})
}

// However little the brokers take, the offset is committed, with the first parts: the first one says whose it is.
func TestOfMetadataThatIsTooLargeTheFirstPartsAreCommitted(t *testing.T) {
	for _, most := range []int{0, 1, 4, 9, 20, 50, 70, 84, 200} {
		synctest.Test(t, func(t *testing.T) {
			c := &coordinator{most: most}
			commits, assignments, log := generationOf(t, c)
			commits.on = func() string { return strings.Repeat("r", 40) }
			assignments[0].TakeOver()
			assignments[0].Commit(20, "first;more;and the last")
			commits.flush(t.Context())
			if len(c.stored) != 1 || most > 4 && !strings.HasPrefix(c.stored[0], `0 at 20 "first`) {
				t.Fatalf("%d bytes: stored %q", most, c.stored)
			}
			said := strings.Count(log.String(), "offset.metadata.max.bytes=4096 on all brokers")
			if want := map[bool]int{true: 1}[most < 84]; said != want {
				t.Errorf("%d bytes: said %d times", most, said)
			}
		})
	}
}

func TestTheFirstPartsOfMetadataFit(t *testing.T) {
	const all = "first;more;and the last"
	on := broker.WorkedOn{Redis: "R", At: time.UnixMilli(1790000000123)}
	name := len(on.AddTo(""))
	for room, want := range map[int]string{
		noMetadata: "", 4: "", 5: "first", 9: "first", 10: "first;more",
		name + 4: "first;more;and the last", name + 5: on.AddTo("first"), name + 9: on.AddTo("first"),
		name + 10: on.AddTo("first;more"), name + len(all): on.AddTo(all), 0: on.AddTo(all),
	} {
		if got := fit(all, on, room); got != want {
			t.Errorf("%d bytes: %q, want %q", room, got, want)
		}
	}
}

func TestTheLastCommitIsGivenUpWhenTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{most: -1}
		for range 1000 {
			c.answers = append(c.answers, always(kafka.GroupCoordinatorNotAvailable))
		}
		commits, assignments, _ := generationOf(t, c)
		assignments[0].Commit(20, "")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		commits.flush(ctx)
		if d := time.Since(began); d != 2*time.Second {
			t.Fatalf("took %v", d)
		}
		c.expect(t)
	})
}

// A partition is stopped after all that was finished has been sent: at the same offset there is more to say.
func TestMoreToSayOfAnOffsetThatIsUnderWayIsSentToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &coordinator{most: -1}
		commits, assignments, _ := generationOf(t, c)
		c.answers = append(c.answers, func(int32) kafka.Error {
			assignments[0].Rewind(20, "stopped")
			return 0
		})
		assignments[0].Commit(20, "")
		commits.send(t.Context())
		commits.send(t.Context())
		c.expect(t, `0 at 20 ""`, `0 at 20 "stopped"`)
	})
}
