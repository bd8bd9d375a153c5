package group

import "github.com/freshet/freshet/eventlog/kafka/broker"

// Assignment is a partition that this member was given for a generation.
type Assignment struct {
	// Topic and Partition say which.
	Topic     string
	Partition int
	// Offset is the offset that the group has committed for it: the first that is not finished. -1 when there is
	// none.
	Offset int64
	// Metadata is what was committed with it; "" when there is none. Another program may have written it.
	Metadata string
	// On says on which Redis all before the offset was done.
	On broker.WorkedOn

	commits *commits
}

// Commit says that everything below an offset is finished. It is sent within half a second or so, and at the latest
// when the generation ends, after handle returned. The metadata is text of at most 3072 bytes: the brokers'
// offset.metadata.max.bytes, less [broker.MaxWorkedOn]. The next owner is given it with the offset; of brokers that
// take less, its part before the first semicolon.
//
// An offset that is not above the last one changes nothing, and neither does a call after the generation has ended for
// good: what could not be committed is done again by the next owner. Commit never blocks.
func (c *Assignment) Commit(offset int64, metadata string) { c.commits.set(c, offset, metadata, false) }

// Rewind is Commit for an offset that may be lower than the last one. It is for one case: the committed offset lies
// beyond the end of the partition, which was created again or cut, and somebody decided to go on with what there is.
func (c *Assignment) Rewind(offset int64, metadata string) { c.commits.set(c, offset, metadata, true) }

// TakeOver says that nothing before the offset is missing on the Redis that [Options].On names, or that what is missing
// is in doubt. From then on commits say that name. Until then they say what the owner before has said. Call it again
// once the name is another one, so that it is said also while nothing is finished.
func (c *Assignment) TakeOver() { c.commits.takeOver(c) }
