package app

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/doubt"
)

// behindAfter is how long nothing may have been known to be finished before the state is Behind: room for the
// second delete and some heartbeats.
func (p *pipeline) behindAfter() time.Duration {
	d := p.config.Invalidator.SecondDelete
	for _, m := range p.config.Mappings {
		d = max(d, m.SecondDelete)
	}
	if p.engine != nil { // an invalidator may have no mappings
		d = max(d, p.engine.LongestD())
	}
	return 2*d + 5*p.config.Source.Heartbeat + time.Second
}

// status is what GET /status shows.
func (p *pipeline) status() Status {
	s := Status{
		Version: p.options.Version, Role: p.options.Role.String(), Started: p.started, Now: time.Now(), FreshAsOf: p.freshAsOf(),
		Alarms: p.alarms.Records(), Doubts: p.doubts.List(),
	}
	for _, g := range p.latency.LastMinute(s.Now) {
		s.Stages = append(s.Stages, StageStatus{Stage: g.Name, P50: g.P50.Seconds(), P99: g.P99.Seconds(), Count: g.Count})
	}
	p.statusOfSource(&s)
	waiting, err := p.statusOfEngine(&s)
	s.Hot = p.hotNow(hotTables)
	if p.kafka != nil {
		s.kafka = p.kafka.Trouble()
	}
	s.State, s.Sentence = p.judge(&s, waiting)
	if err != nil && !p.heldUpByKafka(&s) {
		s.State, s.Sentence = Behind, "the store cannot be read: "+err.Error()
	}
	return s
}

// statusOfSource fills in what the reader knows.
func (p *pipeline) statusOfSource(s *Status) {
	if p.options.Role == Invalidator {
		return
	}
	s.Source = &SourceStatus{Name: p.config.Source.Name, Address: p.config.Source.Addresses[0]}
	s.Standby, s.joining = p.standby()
	r := p.reading.Load()
	if r == nil || s.Standby {
		return
	}
	source, current, durable := r.canal.Stats(), r.saved.Current(), r.saved.Durable()
	s.Source.Flavor, s.Source.Server, s.Source.Connected = current.Flavor, source.Server, source.Connected
	s.Source.Position = written(source.File, source.Pos)
	s.Checkpoint = &CheckpointStatus{
		Position: durable.String(), File: written(durable.File, durable.Pos), Epoch: durable.Epoch, Term: r.saved.Term(), Committed: durable.Committed,
	}
	s.Rows = source.Rows
}

// standby reports whether this process does not lead the readers of the source, and whether it is not known who does.
func (p *pipeline) standby() (standby, joining bool) {
	if p.leader == nil {
		return false, false
	}
	s := p.leader()
	return !s.Leading, !s.Leading && !s.Standby
}

// sourceAway reports whether the process should read a source and cannot.
func (s *Status) sourceAway() bool { return s.Source != nil && !s.Standby && !s.Source.Connected }

// statusOfEngine fills in what the invalidator knows, and returns why it fetches nothing.
func (p *pipeline) statusOfEngine(s *Status) (waiting string, err error) {
	if p.engine == nil {
		return "", nil
	}
	engine := p.engine.Snapshot()
	s.Redis = &RedisStatus{Address: p.config.Redis.Addresses[0], Up: engine.RedisUp, Sentence: engine.Redis}
	s.Keys = p.engine.Acknowledged()
	s.RateLimited, s.RebuildQueue = engine.RateLimited, engine.RebuildQueue
	s.InFlight, s.Pending, s.OldestUnfinished = engine.InFlight, engine.Pending, engine.OldestUnfinished.Seconds()
	s.LatencyP50, s.LatencyP99 = engine.Latency.P50.Seconds(), engine.Latency.P99.Seconds()
	records := map[int]int64{}
	if p.recordsBehind != nil {
		records = p.recordsBehind()
	}
	for _, part := range engine.Partitions {
		ps := PartitionStatus{ID: part.ID, Lag: part.Lag.Seconds(), InFlight: part.InFlight, Pending: part.Pending, Idle: part.Idle}
		if n, known := records[part.ID]; known {
			ps.Records = &n
		}
		s.Partitions = append(s.Partitions, ps)
	}
	if p.stopped != nil {
		s.addStopped(p.stopped(), records)
	}
	if p.spare != nil && len(s.Partitions) == 0 {
		s.spare = p.spare()
		s.joining = s.joining || !s.spare
	}
	s.Parked, s.DeadLetters, err = p.usage()
	return engine.Waiting, err
}

// addStopped adds the partitions that are stopped. Of one that is, the engine may still finish what lies before.
func (s *Status) addStopped(stopped map[int]error, records map[int]int64) {
	for i := range s.Partitions {
		if err := stopped[s.Partitions[i].ID]; err != nil {
			s.Partitions[i].Stopped = err.Error()
			delete(stopped, s.Partitions[i].ID)
		}
	}
	for id, err := range stopped {
		n := records[id]
		s.Partitions = append(s.Partitions, PartitionStatus{ID: id, Stopped: err.Error(), Records: &n})
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
	return fmt.Sprintf("partition %s of the topic is stopped, so changes of its keys are not acted upon (the others go on): %s", strings.Join(ids, ", "), why)
}

func written(file string, pos uint64) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", file, pos)
}

// doubtSentence says what the doubts are about.
func doubtSentence(doubts []doubt.Doubt) string {
	oldest := doubts[0]
	if len(doubts) == 1 {
		return fmt.Sprintf("keys may be stale: %s (when it is seen to: `freshet doubts dismiss %s`)", oldest.Message, oldest.ID)
	}
	return fmt.Sprintf("keys may be stale for %d reasons, see `freshet doubts list`; the oldest: %s", len(doubts), oldest.Message)
}

// judge says in a word and a sentence how things stand.
func (p *pipeline) judge(s *Status, waiting string) (State, string) {
	age := time.Since(s.FreshAsOf)
	switch {
	case p.heldUpByKafka(s) && p.reading.Load() == nil && s.Keys == 0:
		return Starting, fmt.Sprintf("%v; trying again for ever", s.kafka)
	case p.heldUpByKafka(s):
		return Behind, fmt.Sprintf("%v; trying again for ever, nothing is lost", s.kafka)
	case s.joining && p.reading.Load() == nil && s.Keys == 0:
		return Starting, "joining the consumer group in Kafka"
	case s.joining:
		return Behind, "the consumer group in Kafka cannot be reached, or shares its work out anew; trying again for ever"
	case s.Standby && s.Redis == nil:
		return Standby, "another reader of the source " + s.Source.Name + " leads; this one takes over when it stops"
	case s.sourceAway() && s.FreshAsOf.IsZero():
		return Starting, "connecting to the source " + s.Source.Address
	case s.sourceAway():
		return Behind, fmt.Sprintf("the source %s is not connected; trying again for ever, from where the stream broke off", s.Source.Address)
	case s.Redis != nil && !s.Redis.Up:
		return Behind, s.Redis.Sentence + "; reading pauses and nothing is lost, deletes go on when it is back"
	case s.spare && (s.Source == nil || s.Standby):
		return Standby, "this process has no partition of the topic, as a rule because the other invalidators of group " + p.config.EventLog.Kafka.Group +
			" have them all; this one takes over when one of them stops"
	case s.stoppedSentence() != "":
		return Behind, s.stoppedSentence()
	case !p.doubts.Loaded():
		return Starting, "reading from Kafka what is in doubt"
	case s.FreshAsOf.IsZero():
		return Starting, "reading what was committed while freshet was away"
	case age > p.behindAfter() && waiting != "":
		return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished: %s, so reading waits", age.Round(time.Second), waiting)
	case age > p.behindAfter() && s.heldBack() != "":
		return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished: %s; catching up", age.Round(time.Second), s.heldBack())
	case age > p.behindAfter():
		return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished; catching up", age.Round(time.Second))
	case len(s.Doubts) > 0:
		return Doubtful, doubtSentence(s.Doubts)
	case p.counted != nil && !p.counted():
		return Starting, "reading from Kafka which keys were given up"
	case s.DeadLetters > 0:
		return Doubtful, fmt.Sprintf("%d keys were given up and may be stale: see `freshet dlq list`, then replay them, or purge them once they are seen to", s.DeadLetters)
	case s.Parked > 0:
		// Nothing else waits for them: not the checkpoint, nor as of when the cache is fresh.
		return Doubtful, fmt.Sprintf("all that was committed is finished, but for %d keys in trouble that may be stale: they are tried again later "+
			"(the log says what redis answers), and become dead letters if that does not help", s.Parked)
	}
	if s.Redis == nil {
		return Fresh, fmt.Sprintf("all that was committed until %s ago is in the event log", age.Round(time.Millisecond))
	}
	return Fresh, fmt.Sprintf("all that was committed until %s ago is finished, final deletes included", age.Round(time.Millisecond))
}

// heldUpByKafka reports whether trouble with the brokers keeps this process from its work: one of several may be away
// without anybody noticing. Who stands by has no work that could tell; it notices when it cannot stay in its group. A
// leader that loses its group lets go of the source before it says so.
func (p *pipeline) heldUpByKafka(s *Status) bool {
	if s.kafka == nil || s.joining || s.sourceAway() {
		return s.kafka != nil
	}
	standsBy := s.spare || s.Standby && s.Redis == nil
	return !standsBy && time.Since(s.FreshAsOf) > p.behindAfter()
}

// kafkaReady returns what keeps this process from the brokers; nil: nothing.
func (p *pipeline) kafkaReady() error {
	s := p.status()
	switch {
	case !p.kafka.Answered():
		return fmt.Errorf("no broker of %s has answered yet", strings.Join(p.config.EventLog.Kafka.Brokers, ", "))
	case p.heldUpByKafka(&s):
		return s.kafka
	case s.joining:
		return errors.New("joining the consumer group")
	}
	return nil
}

// ready says whether the cache is being kept fresh.
func (p *pipeline) ready() []admin.Check {
	var checks []admin.Check
	if p.options.Role != Invalidator {
		source := admin.Check{Name: "source"}
		standby, joining := p.standby()
		if r := p.reading.Load(); !standby && (r == nil || !r.canal.Stats().Connected) {
			source.Err = fmt.Errorf("%s is not connected", p.config.Source.Addresses[0])
		} else if joining {
			source.Err = errors.New("it is not known which reader leads: joining their consumer group")
		}
		checks = append(checks, source)
	}
	if p.engine != nil {
		redis := admin.Check{Name: "redis"}
		if s := p.engine.Snapshot(); !s.RedisUp {
			redis.Err = errors.New(s.Redis)
		}
		checks = append(checks, redis)
	}
	if p.kafka != nil {
		checks = append(checks, admin.Check{Name: "eventlog", Err: p.kafkaReady()})
	}
	return checks
}
