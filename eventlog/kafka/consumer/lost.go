package consumer

import (
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// Loss is how records were lost.
type Loss string

// The ways in which records are lost.
const (
	// Expired: retention deleted records before they were finished.
	Expired Loss = "expired"
	// Uncommitted: the group has no offset, and older records than those left are gone. Its offsets expired while it
	// was away (offsets.retention.minutes), or it is new and the topic is not.
	Uncommitted Loss = "uncommitted"
	// Truncated: the partition ends before what the group has finished. It was cut by an election among brokers that
	// lacked its end, or deleted and created again.
	Truncated Loss = "truncated"
	// Broken: the records themselves show that some before them are missing.
	Broken Loss = "broken"
)

// losses returns all of them.
func losses() []Loss { return []Loss{Expired, Uncommitted, Truncated, Broken} }

// LostError says that records of a partition are gone that this group has not finished. Nothing is passed over
// silently: the partition is not read any further, unless [Options].SkipLost says so. It is a [retry.ErrHalt].
type LostError struct {
	Loss      Loss
	Topic     string
	Partition int
	Group     string
	// Offset is where reading was to go on: the group's commit, or the place that had been reached. -1: no commit.
	Offset int64
	// Start and End are where the records that are left begin and end.
	Start, End int64
	// Until is when the oldest record that is left was written: changes before it may be lost. Zero: not known.
	Until time.Time
	// Break is set when the loss is [Broken]: Offset is then that of the record that shows it.
	Break *Break

	said string // what the member said that found it before
}

// Break is a record that does not follow what was seen before.
type Break struct {
	Source string
	// Term, Seq and Prev are the record's.
	Term, Seq uint64
	Prev      event.Version
	// SeenTerm, SeenSeq and Seen are those of the last record of the source that was seen before. Zero: there was none,
	// though the partition was read from its very beginning.
	SeenTerm, SeenSeq uint64
	Seen              event.Version
}

// Error returns what, where, since when, and what to do.
func (e *LostError) Error() string {
	s := fmt.Sprintf("kafka: records of %s/%d are lost to group %s: %s", e.Topic, e.Partition, e.Group, e.what())
	if !e.Until.IsZero() {
		s += "; the oldest that is left was written at " + e.Until.UTC().Format(time.RFC3339)
	}
	return s + ". Keys that changed meanwhile may stay stale: clear the cache in the Redis of this group, then start" +
		" freshet invalidator --skip-lost, which goes on from what is left"
}

// Is makes a LostError a [retry.ErrHalt].
func (e *LostError) Is(target error) bool { return target == retry.ErrHalt }

// Records returns which records are lost, if that is known: where retention deleted them. It is nil where records of
// other partitions may be lost as well, and nothing shows it: a topic that was created again holds what was written
// since, and may have fewer partitions.
func (e *LostError) Records() *doubt.Lost {
	if e.Loss != Expired || e.Offset < 0 {
		return nil
	}
	return &doubt.Lost{Partition: e.Partition, From: e.Offset}
}

func (e *LostError) what() string {
	if e.said != "" {
		return e.said
	}
	switch e.Loss {
	case Uncommitted:
		return fmt.Sprintf("it has no committed offset, and the log begins at %d (its offsets expired, or it is new and"+
			" the topic is not)", e.Start)
	case Truncated:
		return fmt.Sprintf("it has come to offset %d, and the log ends at %d (the topic was created again, or brokers"+
			" without its end took it over)", e.Offset, e.End)
	case Broken:
		b := e.Break
		if b.SeenSeq == 0 {
			return fmt.Sprintf("at offset %d source %s begins with record %d of term %d, which follows version %s, and the"+
				" log never held anything of it before that (the topic was created again)", e.Offset, b.Source, b.Seq, b.Term, b.Prev)
		}
		if b.Term == b.SeenTerm {
			return fmt.Sprintf("at offset %d source %s goes on with record %d of term %d after record %d",
				e.Offset, b.Source, b.Seq, b.Term, b.SeenSeq)
		}
		return fmt.Sprintf("at offset %d source %s begins term %d with record %d, which follows version %s; the last one"+
			" seen is record %d of term %d, version %s", e.Offset, b.Source, b.Term, b.Seq, b.Prev, b.SeenSeq, b.SeenTerm,
			b.Seen)
	}
	return fmt.Sprintf("it has come to offset %d, and the log begins at %d (retention deleted what lay between)",
		e.Offset, e.Start)
}
