package consumer

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

// A partition of which records are lost is read no further by any member of the group, until somebody has seen to it.
// So that all know, also when the next records do not show the loss any more, it stands with the group's commit, once
// all that was read is finished:
//
//	freshet1;lost,LOSS,WHAT;SOURCE,…
//
// Members of a freshet that does not know this pass it over, and find the loss by the chain as far as it shows.

// lostPart begins the part of a commit's metadata that says that the partition is stopped.
const lostPart = "lost"

// maxWhat bounds the reason that is kept, in bytes before it is escaped.
const maxWhat = 500

// stop takes note that records are lost, if that is what err says: nothing more is fetched. It is for who fetches.
func (p *assignedPartition) stop(err error) {
	var lost *LostError
	if !errors.As(err, &lost) {
		return
	}
	p.lost, p.records = lost, nil
	if p.feed != nil {
		p.c.fetcher.leave(p.feed)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loss != nil {
		return
	}
	p.loss = lost
	switch {
	case !p.begun:
		p.finished, p.begun = max(p.assignment.Offset, 0), true
		// Where there is no commit it changes nothing.
		p.assignment.Rewind(p.assignment.Offset, withLoss(p.assignment.Metadata, lost))
	case len(p.pending) == 0:
		p.writeLoss()
	}
}

// writeLoss commits that the partition is stopped where it has come to. The caller holds the lock.
func (p *assignedPartition) writeLoss() {
	p.assignment.Rewind(p.finished, withLoss(p.behind.encode(), p.loss))
}

// stopped reports whether records are lost.
func (p *assignedPartition) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loss != nil
}

// foundBefore returns the loss that a member of the group has found before; nil: none.
func (p *assignedPartition) foundBefore(from int64) *LostError {
	loss, what, found := StoppedBy(p.assignment.Metadata)
	if !found {
		return nil
	}
	return FoundBefore(loss, what, p.assignment.Topic, p.id, p.c.o.Group, from)
}

// FoundBefore returns a loss that another member has found, given what [StoppedBy] says.
func FoundBefore(loss Loss, what, topic string, partition int, group string, offset int64) *LostError {
	return &LostError{Loss: loss, Topic: topic, Partition: partition, Group: group, Offset: offset, said: what}
}

// StoppedBy reports whether the metadata of a group's commit says that the partition is stopped, and by what.
func StoppedBy(metadata string) (loss Loss, what string, stopped bool) {
	parts := strings.Split(metadata, ";")
	if parts[0] != signature {
		return "", "", false
	}
	for _, part := range parts[1:] {
		fields := strings.Split(part, ",")
		if len(fields) != 3 || fields[0] != lostPart {
			continue
		}
		what, err := url.QueryUnescape(fields[2])
		if err != nil || what == "" {
			what = "records of it are missing"
		}
		if loss = Loss(fields[1]); !slices.Contains(losses(), loss) {
			loss = Broken
		}
		return loss, what, true
	}
	return "", "", false
}

// withLoss adds to the metadata of a commit that the partition is stopped. The least recent sources make room.
func withLoss(metadata string, e *LostError) string {
	if _, _, stopped := StoppedBy(metadata); stopped {
		return metadata
	}
	what := e.what()
	out := signature + ";" + lostPart + "," + string(e.Loss) + "," +
		url.QueryEscape(strings.ToValidUTF8(what[:min(len(what), maxWhat)], ""))
	parts := strings.Split(metadata, ";")
	if parts[0] != signature {
		return out
	}
	for _, part := range parts[1:] {
		if len(out)+1+len(part) > maxMetadata {
			break
		}
		out += ";" + part
	}
	return out
}
