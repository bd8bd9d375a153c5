package app

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator"
)

// behindAfter is how long nothing may have been known to be finished before the state is Behind: room for the second
// delete, of which d is the longest that was seen besides those of the configuration, and some heartbeats.
func behindAfter(c *config.Config, d time.Duration) time.Duration {
	return 2*max(d, connect.LongestD(c)) + c.Source.FillLag + 5*c.Source.Heartbeat + time.Second
}

// status is what GET /status shows.
func (p *process) status() Status {
	s := Status{
		Version: p.options.Version, Role: p.options.Role.String(), Started: p.started, Now: time.Now(),
		Alarms: p.alarms.Records(), Doubts: shown(p.doubts.List()), EndedDoubts: p.doubts.Ended(),
		circumstances: circumstances{
			group: p.config.EventLog.Kafka.Group, unloaded: !p.doubts.Loaded(), behindAfter: behindAfter(p.config, 0),
		},
	}
	if p.deaf != nil {
		s.deaf = p.deaf()
	}
	for _, g := range p.latency.LastMinute(s.Now) {
		s.Stages = append(s.Stages, StageStatus{Stage: g.Name, P50: g.P50.Seconds(), P99: g.P99.Seconds(), Count: g.Count})
	}
	p.log.Status(&s)
	p.reader.Status(&s)
	p.invalidator.Status(&s)
	if w := p.warming.Load(); w != nil {
		w.status(&s)
	} else {
		s.WarmUpsUnknown = p.options.Role != Reader
	}
	s.State, s.Sentence = s.judge()
	return s
}

// shown returns doubts without what is of no use to who looks at them.
func shown(doubts []doubt.Doubt) []doubt.Doubt {
	for i := range doubts {
		doubts[i].Definitions, doubts[i].Where = nil, ""
	}
	return doubts
}

// ready says whether the cache is being kept fresh.
func (p *process) ready() []admin.Check {
	return slices.Concat(p.reader.Ready(), p.invalidator.Ready(), p.log.Ready(p.status))
}

// judge says in a word and a sentence how things stand: by the first thing that holds it up, in the order of a change's
// path, then by how old what is finished is, and then by what may have left stale keys.
func (s *Status) judge() (State, string) {
	for _, by := range []func(*Status) (State, string){
		(*Status).byKafka, (*Status).byGroup, (*Status).bySource, (*Status).byRedis, (*Status).byAge, (*Status).byDoubt,
	} {
		if state, sentence := by(s); state != "" {
			return state, sentence
		}
	}
	age := time.Since(s.FreshAsOf).Round(time.Millisecond)
	if s.Redis == nil {
		return Fresh, fmt.Sprintf("all that was committed until %s ago is in the event log", age)
	}
	return Fresh, fmt.Sprintf("all that was committed until %s ago is finished, final deletes included", age)
}

// idle reports whether the process has done nothing yet, so that what holds it up holds up its start.
func (s *Status) idle() bool { return !s.began && s.Keys == 0 }

func (s *Status) byKafka() (State, string) {
	switch {
	case !s.heldUpByKafka():
	case s.idle():
		return Starting, fmt.Sprintf("%v; trying again forever", s.kafka)
	default:
		return Behind, fmt.Sprintf("%v; trying again forever, nothing is lost", s.kafka)
	}
	return "", ""
}

// byGroup judges by the consumer groups of Kafka that the process is in.
func (s *Status) byGroup() (State, string) {
	switch {
	case s.unreadable != nil:
		return Behind, "the store cannot be read: " + s.unreadable.Error()
	case s.joining && s.idle():
		return Starting, "joining the consumer group in Kafka"
	case s.joining:
		return Behind, "the consumer group in Kafka cannot be reached, or shares its work out again; trying again forever"
	case s.Standby && s.Redis == nil:
		return Standby, "another reader of the source " + s.Source.Name + " leads; this one takes over when it stops"
	}
	return "", ""
}

func (s *Status) bySource() (State, string) {
	switch {
	case !s.sourceAway():
	case s.FreshAsOf.IsZero():
		return Starting, "connecting to the source " + s.Source.Address
	default:
		return Behind, fmt.Sprintf("the source %s is not connected; trying again forever, from where the stream broke off",
			s.Source.Address)
	}
	return "", ""
}

// byRedis judges by what comes after the event log.
func (s *Status) byRedis() (State, string) {
	switch {
	case s.Redis != nil && !s.Redis.Up && s.Redis.someUp():
		return Behind, s.Redis.Sentence + "; their keys wait and nothing is lost, those of other nodes go on"
	case s.Redis != nil && !s.Redis.Up:
		return Behind, s.Redis.Sentence + "; reading pauses and nothing is lost, deletes go on when it is back"
	case s.Redis != nil && s.Redis.Unserved > 0:
		return Behind, fmt.Sprintf("no node of %s has %d of its slots, so their keys wait and those of others go on: give "+
			"them to a node (redis-cli --cluster fix)", s.Redis.Address, s.Redis.Unserved)
	case s.spare && (s.Source == nil || s.Standby):
		return Standby, "this process has no partition of the topic, as a rule because the other invalidators of group " +
			s.group +
			" have them all; this one takes over when one of them stops"
	}
	if stopped := s.stoppedSentence(); stopped != "" {
		return Behind, stopped
	}
	return "", ""
}

// someUp reports whether some node of a cluster answers.
func (r *RedisStatus) someUp() bool {
	return slices.ContainsFunc(r.Nodes, func(n invalidator.NodeStatus) bool { return n.Up })
}

// moving says that slots of a cluster are being moved; "" if none are.
func (r *RedisStatus) moving() string {
	slots := 0
	if r != nil {
		for _, n := range r.Nodes {
			slots += n.Moving
		}
	}
	if slots == 0 {
		return ""
	}
	return fmt.Sprintf("%d slots of %s are being moved, so some of their keys wait until that is over (if nobody moves them: "+
		"redis-cli --cluster fix)", slots, r.Address)
}

// byAge judges by how long ago what is finished was committed.
func (s *Status) byAge() (State, string) {
	age := time.Since(s.FreshAsOf)
	moving := s.Redis.moving()
	held := join(s.heldBack(), moving)
	switch {
	case s.unloaded:
		return Starting, "reading from Kafka what is in doubt"
	case s.Source != nil && s.Source.Apart != "" && s.Source.Apart == s.Source.Address:
		return Behind, fmt.Sprintf("the address %s leads to another server than the one that is read, which lacks what is "+
			"written there: that is read in a moment, if it has all that was read", s.Source.Address)
	case s.Source != nil && s.Source.Apart != "": // as of when that is, nobody knows
		return Behind, fmt.Sprintf("what is written on %s does not come to %s, which is read; the alarm of the source says what "+
			"to do", s.Source.Apart, s.Source.Address)
	case s.Source != nil && s.Source.Unheard != "": // nor which server that is by now
		return Behind, fmt.Sprintf("no new connection to the source %s comes about (%s), so another server may have taken the "+
			"place of the one that is read: let freshet connect", s.Source.Address, s.Source.Unheard)
	case s.FreshAsOf.IsZero() && moving != "":
		return Starting, "reading what was committed while freshet was away: " + moving
	case s.FreshAsOf.IsZero():
		return Starting, "reading what was committed while freshet was away"
	case age <= s.behindAfter:
		return "", ""
	case s.waiting != "":
		return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished: %s, so reading waits",
			age.Round(time.Second), join(s.waiting, moving))
	case held != "":
		return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished: %s; catching up",
			age.Round(time.Second), held)
	}
	return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished; catching up", age.Round(time.Second))
}

// byDoubt judges by what may have left stale keys although everything is finished.
func (s *Status) byDoubt() (State, string) {
	switch {
	case len(s.Doubts) > 0:
		return Doubtful, doubtSentence(s.Doubts)
	case !s.deaf.IsZero():
		return Doubtful, fmt.Sprintf("it is not known what is in doubt since %s ago: the topic of doubts cannot be read, "+
			"and the log says why", time.Since(s.deaf).Round(time.Second))
	case !s.unheard.IsZero():
		return Doubtful, fmt.Sprintf("it is not known since %s ago whether redis %s is still the same server: deletes are "+
			"acknowledged on connections of before, and no new one can be used (%v), so another server may have taken its place",
			time.Since(s.unheard).Round(time.Second), s.Redis.Address, s.unheardWhy)
	case s.late != "":
		return Doubtful, fmt.Sprintf("the last work on partition %s was done on another server than redis %s: the invalidator "+
			"that has it has not come to this one yet", s.late, s.Redis.Address)
	case s.uncounted:
		return Starting, "reading from Kafka which keys were given up"
	case s.DeadLetters > 0:
		return Doubtful, fmt.Sprintf("%d keys were given up and may be stale: see `freshet dlq list`, then replay them, or "+
			"purge them once they are seen to", s.DeadLetters)
	case s.Parked > 0:
		// Nothing else waits for them: not the checkpoint, nor as of when the cache is fresh.
		return Doubtful, fmt.Sprintf("all that was committed is finished, but for %d keys in trouble that may be stale: "+
			"they are tried again later "+
			"(the log says what redis answers), and become dead letters if that does not help", s.Parked)
	}
	return "", ""
}

// sourceAway reports whether the process should read a source and cannot.
func (s *Status) sourceAway() bool { return s.Source != nil && !s.Standby && !s.Source.Connected }

// heldUpByKafka reports whether trouble with the brokers keeps this process from its work: one of several may be away
// without anybody noticing. Who stands by has no work that could tell; it notices when it cannot stay in its group. A
// leader that loses its group lets go of the source before it says so.
func (s *Status) heldUpByKafka() bool {
	if s.kafka == nil || s.joining || s.sourceAway() {
		return s.kafka != nil
	}
	standsBy := s.spare || s.Standby && s.Redis == nil
	return !standsBy && time.Since(s.FreshAsOf) > s.behindAfter
}

// addPartitions adds what the event log knows of its partitions. Of one that is stopped, the engine may still finish
// what lies before.
func (s *Status) addPartitions(all []eventlog.PartitionState) {
	for _, p := range all {
		at := slices.IndexFunc(s.Partitions, func(o PartitionStatus) bool { return o.ID == p.Partition })
		if at < 0 {
			if p.Stopped == nil {
				continue
			}
			at = len(s.Partitions)
			s.Partitions = append(s.Partitions, PartitionStatus{ID: p.Partition})
		}
		s.Partitions[at].Records = &p.Records
		if p.Stopped != nil {
			s.Partitions[at].Stopped = p.Stopped.Error()
		}
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int { return cmp.Compare(a.ID, b.ID) })
}

// stoppedSentence says which partitions are stopped, and why the first is; "" if none are.
func (s *Status) stoppedSentence() string {
	var ids []string
	why := ""
	for _, p := range s.Partitions {
		if p.Stopped == "" {
			continue
		}
		if ids = append(ids, strconv.Itoa(p.ID)); why == "" {
			why = p.Stopped
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf("partition %s of the topic is stopped, so changes of its keys are not acted upon (the others go "+
		"on): %s", strings.Join(ids, ", "), why)
}

// doubtSentence says what the doubts are about.
func doubtSentence(doubts []doubt.Doubt) string {
	oldest := doubts[0]
	what := oldest.Answer
	switch {
	case what != "":
	case wanted(&oldest):
		what = "freshet answers it: it is about to begin"
	default:
		what = fmt.Sprintf("`freshet doubts answer %s` has them forgotten; or clear them, then `freshet doubts dismiss %s`",
			oldest.ID, oldest.ID)
	}
	if len(doubts) == 1 {
		return fmt.Sprintf("keys may be stale: %s (%s)", oldest.Message, what)
	}
	return fmt.Sprintf("keys may be stale for %d reasons, see `freshet doubts list`; the oldest: %s (%s)", len(doubts),
		oldest.Message, what)
}
