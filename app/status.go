package app

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator"
)

// State is how freshet is doing, in one word.
type State string

// The states.
const (
	// Starting: it has not begun to stream yet.
	Starting State = "starting"
	// Fresh: what was committed a moment ago is finished, or on its way as it should be.
	Fresh State = "fresh"
	// Standby: it reads, or deletes, when another process that does so now stops.
	Standby State = "standby"
	// Behind: something holds it up; the status' sentence says what.
	Behind State = "behind"
	// Doubtful: all work is finished or on its way, but something happened that may have left stale keys; the doubts
	// say what, and stay until they are answered. So it is while keys are parked, or dead letters.
	Doubtful State = "doubtful"
)

// Status is what GET /status returns.
type Status struct {
	State State `json:"state"`
	// Sentence says the state to a human, and what freshet is doing about it.
	Sentence string `json:"sentence"`
	Version  string `json:"version"`
	// Role is the command that it was started by: run, reader or invalidator.
	Role    string    `json:"role"`
	Started time.Time `json:"started"`
	// Now is when all this was true.
	Now time.Time `json:"now"`
	// FreshAsOf: everything that was committed before this moment is finished, final deletes included, but for keys in
	// trouble (Parked, DeadLetters). By this machine's clock; zero until it is known.
	FreshAsOf time.Time `json:"fresh_as_of"`

	// Standby says that this process does not lead the readers of the source.
	Standby bool `json:"standby,omitempty"`
	circumstances

	// Source and Checkpoint are nil in a process that does not read, Checkpoint also before it leads; Redis is nil in
	// one that deletes no keys.
	Source     *SourceStatus     `json:"source,omitempty"`
	Checkpoint *CheckpointStatus `json:"checkpoint,omitempty"`
	Redis      *RedisStatus      `json:"redis,omitempty"`

	// Rows and Keys are how many row changes of mapped tables were read and how many keys Redis acknowledged,
	// since the start.
	Rows uint64 `json:"rows"`
	Keys uint64 `json:"keys"`
	// InFlight keys were read and not yet deleted once; Pending wait for their final delete. The oldest batch that is
	// not finished was read OldestUnfinished seconds ago. Parked and DeadLetters are keys in trouble.
	InFlight int64 `json:"in_flight"`
	Pending  int64 `json:"pending"`
	// RateLimited of the pending keys wait for the rate_limit of their mapping, RebuildQueue of all for a query to
	// begin.
	RateLimited      int64   `json:"rate_limited"`
	RebuildQueue     int64   `json:"rebuild_queue"`
	OldestUnfinished float64 `json:"oldest_unfinished_seconds"`
	Parked           int     `json:"parked"`
	DeadLetters      int     `json:"dead_letters"`
	// LatencyP50 and LatencyP99 are from commit, by the source's clock, to the first acknowledged delete, in seconds
	// over the last minute; 0 when nothing was deleted in it.
	LatencyP50 float64 `json:"latency_p50_seconds"`
	LatencyP99 float64 `json:"latency_p99_seconds"`
	// Stages are those of a change's path, in its order, with what they took in the last minute.
	Stages []StageStatus `json:"stages"`
	// Partitions are those that this process serves.
	Partitions []PartitionStatus `json:"partitions,omitempty"`
	// Hot are the tables that change most; nil in a process that deletes no keys. The keys are at GET /hot.
	Hot *HotStatus `json:"hot,omitempty"`

	Alarms []alarm.Record `json:"alarms"`
	// Doubts are what may have left stale keys, until they are answered.
	Doubts []doubt.Doubt `json:"doubts"`
	// EndedDoubts are the last that this process has answered, or that were dismissed there, the newest first: up to 10.
	EndedDoubts []doubt.Ended `json:"ended_doubts,omitempty"`
	// WarmUps are those that are under way or wait, in their order, and EndedWarmUps the last that have ended,
	// the newest first: up to 10. With Kafka they are those of the group.
	WarmUps      []WarmUp      `json:"warm_ups,omitempty"`
	EndedWarmUps []EndedWarmUp `json:"ended_warm_ups,omitempty"`
	// WarmUpsUnknown says that it is not known yet which warm-ups there are: freshet is starting.
	WarmUpsUnknown bool `json:"warm_ups_unknown,omitempty"`
}

// circumstances are what the state is judged by, besides what is shown.
type circumstances struct {
	// began says that this process has read from the source. joining says that it is not known who leads the readers,
	// or who has the partitions of the event log; spare that others have them all.
	began, joining, spare bool
	// group is that of the invalidators, with Kafka.
	group string
	// kafka is what the brokers last held against this process; nil: nothing.
	kafka error
	// unloaded says that it is not known yet what is in doubt, uncounted that the dead letters are not counted yet, and
	// unreadable why they cannot be.
	unloaded, uncounted bool
	unreadable          error
	// deaf is since when it cannot be heard what is in doubt; zero: it can be.
	deaf time.Time
	// late is a partition whose last work the group has done on another Redis; "": there is none.
	late string
	// unheard is since when no new connection to Redis has come about, and unheardWhy why; zero: one has lately.
	unheard    time.Time
	unheardWhy error
	// waiting is why the engine fetches nothing; "" while it does.
	waiting string
	// behindAfter is how long nothing may have been known to be finished before the state is Behind.
	behindAfter time.Duration
}

// StageStatus is how one stage did in the last minute: read (from commit), append, fetch, delete, finish.
type StageStatus struct {
	Stage string  `json:"stage"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	// Count is how often it was passed: by transactions for read, by batches for the others.
	Count uint64 `json:"count"`
}

// PartitionStatus is how one partition of the event log stands.
type PartitionStatus struct {
	ID int `json:"id"`
	// Lag is how far its finished work is behind the source's commits, in seconds.
	Lag float64 `json:"lag_seconds"`
	// InFlight and Pending are as in [Status].
	InFlight int64 `json:"in_flight"`
	Pending  int64 `json:"pending"`
	// Idle is true while it waits for more.
	Idle bool `json:"idle"`
	// Records is how many records are in it that are not finished; nil where the event log does not count them.
	Records *int64 `json:"records_behind,omitempty"`
	// Stopped is why it is read no further, and what to do about it; empty while it is read.
	Stopped string `json:"stopped,omitempty"`
}

// SourceStatus is the source as freshet sees it.
type SourceStatus struct {
	Name      string       `json:"name"`
	Address   string       `json:"address"`
	Flavor    event.Flavor `json:"flavor,omitempty"`
	Server    string       `json:"server,omitempty"`
	Connected bool         `json:"connected"`
	// Position is how far it has been read: file:position.
	Position string `json:"position,omitempty"`
	// Apart is the address of another server of the source on which is written what does not come to this one, so that
	// keys of it stay stale; "": none is known.
	Apart string `json:"apart,omitempty"`
	// Unheard is why no new connection to the source has come about for some time, so that another server may have taken
	// its place unnoticed; "": one has.
	Unheard string `json:"unheard,omitempty"`
	// FillFrom are the servers that the application fills its cache from, where that is not the source alone.
	FillFrom []canal.FillServer `json:"fill_from,omitempty"`
}

// CheckpointStatus is the durable position: everything up to it is finished.
type CheckpointStatus struct {
	Position  string    `json:"position"`
	File      string    `json:"file"`
	Epoch     uint32    `json:"epoch"`
	Term      uint64    `json:"term"`
	Committed time.Time `json:"committed"`
}

// RedisStatus is Redis as freshet sees it.
type RedisStatus struct {
	Address string `json:"address"`
	Up      bool   `json:"up"`
	// Sentence says how it is.
	Sentence string `json:"sentence"`
	// Nodes are the masters of a cluster; nil without one. Unserved is how many slots no node has.
	Nodes    []invalidator.NodeStatus `json:"nodes,omitempty"`
	Unserved int                      `json:"slots_unserved,omitempty"`
}

// Print writes the status for a human.
func (s Status) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("state", "%s: %s", s.State, s.Sentence)
	if !s.FreshAsOf.IsZero() {
		line("fresh as of", "%s", s.FreshAsOf.Local().Format(time.RFC3339Nano))
	}
	if s.Source != nil {
		line("source", "%s", join(s.Source.Name, s.Source.Address, string(s.Source.Flavor), s.Source.Position))
		for _, f := range s.Source.FillFrom {
			line("fill server", "%s", f.String())
		}
	}
	if s.Checkpoint != nil {
		line("checkpoint", "%s (epoch %d, term %d)", s.Checkpoint.Position, s.Checkpoint.Epoch, s.Checkpoint.Term)
	}
	if s.Redis != nil {
		line("redis", "%s", s.Redis.Sentence)
		for _, n := range s.Redis.Nodes {
			moving := ""
			if n.Moving > 0 {
				moving = fmt.Sprintf(", of which %d are being moved", n.Moving)
			}
			line("node", "%s (%d slots%s)", n.Sentence, n.Slots, moving)
		}
	}
	if s.Source != nil && !s.Standby {
		line("since the start", "%d row changes", s.Rows)
	}
	if s.Redis != nil {
		s.printDeletes(line)
	}
	for _, d := range s.Doubts {
		line("doubt "+d.ID, "%s since %s: %s", d.Cause, d.Since.Local().Format(time.RFC3339), d.Message)
	}
	for _, w := range s.WarmUps {
		pace := ""
		if w.Progress.String() != "" {
			pace = ", " + w.Progress.String()
		}
		line("warm-up "+w.ID, "of %s: %s, %d rows read, %d keys%s", w.Table, w.Answer, w.Rows, w.Keys, pace)
	}
	for _, a := range s.Alarms {
		line("alarm", "%s %s, %d times, last %s: %s", a.Kind, "raised", a.Count, a.Last.Local().Format(time.RFC3339),
			a.Message)
	}
	return t.Flush()
}

// printDeletes writes what a process that deletes keys has to say.
func (s *Status) printDeletes(line func(name, format string, args ...any)) {
	line("keys done", "%d since the start, as often as Redis acknowledged an action on one", s.Keys)
	line("latency", "p50 %s, p99 %s (last minute)", seconds(s.LatencyP50), seconds(s.LatencyP99))
	line("in flight", "%d keys", s.InFlight)
	line("final deletes", "%d keys waiting; the oldest unfinished batch was read %s ago", s.Pending,
		seconds(s.OldestUnfinished))
	if held := s.heldBack(); held != "" {
		line("waiting", "%s", held)
	}
	line("in trouble", "%d parked, %d dead letters", s.Parked, s.DeadLetters)
	if s.Hot != nil && len(s.Hot.Tables) > 0 {
		var hottest []string
		for _, c := range s.Hot.Tables[:min(3, len(s.Hot.Tables))] {
			hottest = append(hottest, c.String())
		}
		line("hottest", "%s of %s keys (--hot: all, and which keys)", strings.Join(hottest, ", "), rate(s.Hot.PerSecond))
	}
	for _, p := range s.Partitions {
		switch {
		case p.Stopped != "":
			line("partition "+strconv.Itoa(p.ID), "stopped: %s", p.Stopped)
		case len(s.Partitions) > 1:
			line("partition "+strconv.Itoa(p.ID), "%s behind, %d keys in flight, %d waiting", seconds(p.Lag), p.InFlight,
				p.Pending)
		}
	}
}

// heldBack says which keys wait for what a mapping asks for; "" if none do.
func (s *Status) heldBack() string {
	var parts []string
	if s.RateLimited > 0 {
		parts = append(parts, fmt.Sprintf("%d keys wait for the rate_limit of their mapping", s.RateLimited))
	}
	if s.RebuildQueue > 0 {
		parts = append(parts, fmt.Sprintf("%d keys wait for a query to begin", s.RebuildQueue))
	}
	return strings.Join(parts, ", ")
}

func join(parts ...string) string {
	kept := parts[:0]
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ", ")
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// TailEvent is one line of the tail: an invalidation as it passed from the router to the event log.
type TailEvent struct {
	Key    string `json:"key"`
	Action string `json:"action"`
	// Intent says which way the action goes (put, remove, forget); empty where there is only one.
	Intent    string    `json:"intent,omitempty"`
	Table     string    `json:"table"`
	Version   string    `json:"version"`
	GTID      string    `json:"gtid,omitempty"`
	Committed time.Time `json:"committed"`
	// Missed is how many batches were left out before this event, because the watcher was too slow.
	Missed int64 `json:"missed,omitempty"`
}

// String returns the event as one line.
func (e TailEvent) String() string {
	action := strings.TrimSpace(e.Action + " " + e.Intent)
	s := fmt.Sprintf("%s  %s  %s  %q  %s", e.Committed.Local().Format("2006-01-02T15:04:05.000000"), action, e.Table,
		e.Key, e.Version)
	if e.GTID != "" {
		s += "  " + e.GTID
	}
	if e.Missed > 0 {
		s = fmt.Sprintf("(missed %d batches)\n%s", e.Missed, s)
	}
	return s
}

// tailEvents calls each with every invalidation of a batch.
func tailEvents(b *event.Batch, missed int64, each func(any) error) error {
	for i := range b.Len() {
		inv := &b.Invalidations[i]
		o := b.Origin(int(inv.Origin))
		e := TailEvent{
			Key: b.Key(i), Action: inv.Action.String(), Table: o.Table, Version: b.Version(i).String(),
			GTID: o.Tx.GTID.String(), Committed: o.Tx.Committed, Missed: missed,
		}
		switch inv.Action {
		case event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionZSet:
			e.Intent = inv.Intent.String()
		}
		missed = 0
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}
