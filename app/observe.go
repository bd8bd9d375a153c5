package app

import (
	"fmt"
	"time"
)

// behindAfter is how long nothing may have been known to be finished before the state is Behind: room for the
// second delete and some heartbeats.
func (p *pipeline) behindAfter() time.Duration {
	d := p.config.Invalidator.SecondDelete
	for _, m := range p.config.Mappings {
		d = max(d, m.SecondDelete)
	}
	return 2*d + 5*p.config.Source.Heartbeat + time.Second
}

// status is what GET /status shows.
func (p *pipeline) status() Status {
	source, engine, cp := p.canal.Stats(), p.engine.Snapshot(), p.store.Checkpoint()
	current, durable := cp.Current(), cp.Durable()
	usage, err := p.store.Usage()
	s := Status{
		Version: p.options.Version, Started: p.started, FreshAsOf: p.fresh.at(&current),
		Source: SourceStatus{
			Name: p.config.Source.Name, Address: p.config.Source.Addresses[0], Flavor: current.Flavor,
			Server: source.Server, Connected: source.Connected, Position: written(source.File, source.Pos),
		},
		Checkpoint: CheckpointStatus{
			Position: durable.String(), File: written(durable.File, durable.Pos), Epoch: durable.Epoch, Term: cp.Term(), Committed: durable.Committed,
		},
		Redis:    RedisStatus{Address: p.config.Redis.Addresses[0], Up: engine.RedisUp, Sentence: engine.Redis},
		Rows:     source.Rows,
		Keys:     p.engine.Acknowledged(),
		InFlight: engine.InFlight, Pending: engine.Pending, OldestUnfinished: engine.OldestUnfinished.Seconds(),
		Parked: usage.Parked, DeadLetters: usage.DeadLetters,
		LatencyP50: engine.Latency.P50.Seconds(), LatencyP99: engine.Latency.P99.Seconds(),
		Alarms: p.alarms.Records(),
	}
	s.State, s.Sentence = p.judge(&s, engine.Waiting)
	if err != nil {
		s.State, s.Sentence = Behind, "the store cannot be read: "+err.Error()
	}
	return s
}

func written(file string, pos uint64) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", file, pos)
}

// judge says in a word and a sentence how things stand.
func (p *pipeline) judge(s *Status, waiting string) (State, string) {
	age := time.Since(s.FreshAsOf)
	switch {
	case !s.Source.Connected && s.FreshAsOf.IsZero():
		return Starting, "connecting to the source " + s.Source.Address
	case !s.Source.Connected:
		return Behind, fmt.Sprintf("the source %s is not connected; trying again for ever, from where the stream broke off", s.Source.Address)
	case !s.Redis.Up:
		return Behind, s.Redis.Sentence + "; reading pauses and nothing is lost, deletes go on when it is back"
	case s.FreshAsOf.IsZero():
		return Starting, "reading what was committed while freshet was away"
	case age > p.behindAfter() && waiting != "":
		return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished: %s, so reading waits", age.Round(time.Second), waiting)
	case age > p.behindAfter():
		return Behind, fmt.Sprintf("nothing newer than %s ago is known to be finished; catching up", age.Round(time.Second))
	case s.DeadLetters > 0:
		return Fresh, fmt.Sprintf("all that was committed is deleted, but for %d keys that were given up: see `freshet dlq list`", s.DeadLetters)
	case s.Parked > 0:
		return Fresh, fmt.Sprintf("all that was committed is deleted, but for %d keys in trouble that are tried again later", s.Parked)
	}
	return Fresh, fmt.Sprintf("all that was committed until %s ago is finished, final deletes included", age.Round(time.Millisecond))
}
