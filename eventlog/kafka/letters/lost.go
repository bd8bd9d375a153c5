package letters

import "fmt"

// loss says that parked keys were lost by the brokers: their deletes may never be made. Nothing brings them back, and
// those that are left wait for theirs, so it becomes a doubt and is passed over.
type loss struct {
	Topic     string
	Partition int
	// Committed is the offset up to which keys were finished; -1: there was no commit.
	Committed int64
	// Start and End are where the partition's records begin and end.
	Start, End int64
}

// String says what was lost, how it may have come to that, and what to do.
func (e *loss) String() string {
	where := fmt.Sprintf("parked keys were lost: %s/%d holds the offsets from %d to %d, and ", e.Topic, e.Partition,
		e.Start, e.End)
	var why string
	switch {
	case e.Committed < 0:
		why = "the group has committed none: its commit has expired (offsets.retention.minutes) or was deleted"
	case e.Committed < e.Start:
		why = fmt.Sprintf("only those below %d were finished: the topic's retention (retention.ms, retention.bytes) is "+
			"shorter than the outage was", e.Committed)
	default:
		why = fmt.Sprintf("those below %d were finished: the topic was created again, or an unclean leader election has cut it",
			e.Committed)
	}
	return where + why + ". Their keys may stay stale in Redis: delete them by hand or wait out their TTL. freshet goes " +
		"on with the keys that are left"
}
