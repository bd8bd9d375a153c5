// Package alarm collects what an operator must know: things that freshet noticed and did not swallow. Every
// alarm is counted by kind, logged (a repeated one at most once a minute, with how often it came) and kept for
// /status. An alarm is not an error that is returned: what raises one goes on.
package alarm

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind names a class of alarm; it is a metric label, so there are few of them.
type Kind string

// The kinds of alarm.
const (
	// TruncatedTable: TRUNCATE, DROP, RENAME or a partition drop on a mapped table; its cached keys stay.
	TruncatedTable Kind = "table_truncated"
	// StatementLogged: a statement on a mapped table was logged as a statement, so its rows were not seen; also an
	// ALTER TABLE that made other values of a column.
	StatementLogged Kind = "statement_logged"
	// RowsCascaded: foreign keys had the source change rows of mapped tables without row events.
	RowsCascaded Kind = "rows_cascaded"
	// BinlogIncomplete: the source is set so that changes of mapped tables are not in its binlog.
	BinlogIncomplete Kind = "binlog_incomplete"
	// EventUndecodable: rows of a mapped table could not be read, so their keys are not known.
	EventUndecodable Kind = "event_undecodable"
	// DefinitionChanged: the columns of a mapped table are not those that statements in the binlog made of it, or were
	// not certain, so rows may have been read under wrong names.
	DefinitionChanged Kind = "definition_changed"
	// RedisChanged: Redis is not the server that it was, or holds older data: keys that were deleted may be back.
	RedisChanged Kind = "redis_changed"
	// RedisMoved: the keys are looked for in another database of Redis than before, or under another prefix.
	RedisMoved Kind = "redis_moved"
	// RedisSplit: two invalidators of a group work on two Redis servers or clusters, so that each gets a part of the
	// deletes.
	RedisSplit Kind = "redis_split"
	// RedisStranger: an address of a Redis Cluster leads to a node of another cluster. Nothing is sent to that one.
	RedisStranger Kind = "redis_stranger"
	// RedisSlotsUnserved: no node of a Redis Cluster has some of its slots, so their keys wait.
	RedisSlotsUnserved Kind = "redis_slots_unserved"
	// XAUnread: an XA transaction was committed whose rows came before reading began.
	XAUnread Kind = "xa_unread"
	// ColumnAbsent: a row image lacked a column that a key needs, so that key could not be named.
	ColumnAbsent Kind = "key_column_absent"
	// KeyTooLong: a key would have been longer than any key should be, so it was not made.
	KeyTooLong Kind = "key_too_long"
	// ValueLost: a value could not be made of a row (too large, or not what Redis wants there), so its key was deleted.
	ValueLost Kind = "value_lost"
	// MappingUnfit: a mapping names a column that the table does not have, or that can make no key.
	MappingUnfit Kind = "mapping_unfit"
	// PredicateFailed: a `when` failed at run time and counted as true.
	PredicateFailed Kind = "predicate_failed"
	// StoreFull: the store of parked keys and dead letters is full, so reading has stopped.
	StoreFull Kind = "store_full"
	// StoreFailed: the store cannot be written to.
	StoreFailed Kind = "store_failed"
	// RedisAway: Redis does not answer or does not take writes, so reading has stopped.
	RedisAway Kind = "redis_away"
	// RedisSlow: final deletes are long overdue, since Redis answers too slowly for the second delete in use.
	RedisSlow Kind = "redis_slow"
	// RedisUnknown: Redis does not say who it is, so a restart from an old snapshot, or a failover, would not be
	// noticed.
	RedisUnknown Kind = "redis_unknown"
	// RebuildFailed: a key could not be rebuilt by its mapping's query, so it was deleted.
	RebuildFailed Kind = "rebuild_failed"
	// RebuildForgone: the queries of a mapping cannot keep up with its changes, so keys were deleted instead of
	// rebuilt.
	RebuildForgone Kind = "rebuild_forgone"
	// KafkaAway: the brokers do not answer, or refuse what freshet asks of them, so reading or fetching has stopped.
	KafkaAway Kind = "kafka_away"
	// RecordUnreadable: a record of the event log was passed over, or holds up its partition, since it cannot be read.
	RecordUnreadable Kind = "record_unreadable"
	// RecordsLost: the event log lost records before they were finished; the partition is stopped, unless it was to go
	// on.
	RecordsLost Kind = "records_lost"
	// RetentionNear: the event log will soon delete records that are not finished.
	RetentionNear Kind = "retention_near"
	// SourceAway: the source cannot be reached.
	SourceAway Kind = "source_away"
	// SourceBehind: another server answers for the source, and does not yet hold all that was read from the one before;
	// or without GTIDs, nobody can know. Also: the replica that is read has long lacked what is written elsewhere.
	SourceBehind Kind = "source_behind"
	// SourceSplit: two servers of one source take writes, and each has transactions that the other lacks, or what is
	// written on one can never come to the one that is read.
	SourceSplit Kind = "source_split"
	// ServerBehind: another server answered for the source and lacked transactions that were finished, so what was
	// cached from it may be stale. It is answered once a server that lacks nothing is read.
	ServerBehind Kind = "server_behind"
	// FillServerLeftOut: a server that the application fills its cache from was silent or late, so that changes were
	// finished without it: what its readers cached since may be stale.
	FillServerLeftOut Kind = "fill_server_left_out"
	// SourceShared: two databases are read under one source.name, so the changes of one are not acted upon.
	SourceShared Kind = "source_shared"
	// NotVisible: the source has not confirmed the visibility of read changes for long.
	NotVisible Kind = "not_visible"
	// NoticesDropped: of a key that changed again and again while it was parked, not every message or stream entry was
	// kept.
	NoticesDropped Kind = "notices_dropped"
	// DeadLetter: a key was given up after its last attempt.
	DeadLetter Kind = "dead_letter"
	// EpochRaised: the source's identity changed.
	EpochRaised Kind = "epoch_raised"
	// MappingsChanged: the mappings are not those that the checkpoint was written under.
	MappingsChanged Kind = "mappings_changed"
	// XAKeysUnknown: the keys of a prepared XA transaction do not fit into the stash, so its commit leaves stale keys.
	XAKeysUnknown Kind = "xa_keys_unknown"
	// FirstStart: there was no checkpoint, and Redis held keys of the mappings already, or not all of its keys could be
	// looked at.
	FirstStart Kind = "first_start"
	// BinlogGap: the source could not be read on from where reading was, and it went on at the end of the binlog
	// (on_gap: invalidate).
	BinlogGap Kind = "binlog_gap"
	// PositionSkipped: an operator set the position forward, over changes that were not read.
	PositionSkipped Kind = "position_skipped"
	// ByHand: an operator asked for keys to be forgotten.
	ByHand Kind = "by_hand"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		TruncatedTable,
		StatementLogged,
		RowsCascaded,
		BinlogIncomplete,
		RedisChanged,
		RedisMoved,
		RedisSplit,
		RedisStranger,
		RedisSlotsUnserved,
		DefinitionChanged,
		EventUndecodable,
		ColumnAbsent,
		KeyTooLong,
		ValueLost,
		MappingUnfit,
		PredicateFailed,
		StoreFull,
		StoreFailed,
		RedisAway,
		RedisSlow,
		RedisUnknown,
		RebuildFailed,
		RebuildForgone,
		KafkaAway,
		RecordUnreadable,
		RecordsLost,
		RetentionNear,
		SourceAway,
		SourceBehind,
		SourceSplit,
		ServerBehind,
		FillServerLeftOut,
		SourceShared,
		NotVisible,
		NoticesDropped,
		DeadLetter,
		EpochRaised,
		MappingsChanged,
		XAKeysUnknown,
		XAUnread,
		FirstStart,
		BinlogGap,
		PositionSkipped,
		ByHand,
	}
}

// quiet is how long an alarm that was logged is only counted when it comes again with the same words.
const quiet = time.Minute

// keep is how many alarms are kept for /status.
const keep = 100

// Record is one alarm as /status shows it.
type Record struct {
	Kind    Kind      `json:"kind"`
	Message string    `json:"message"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"`

	unlogged int
	logged   time.Time
}

// Board is where alarms are raised. It is safe for concurrent use. A nil Board swallows nothing: it logs to
// slog.Default, so that a test need not make one.
type Board struct {
	log   *slog.Logger
	total *prometheus.CounterVec

	mu      sync.Mutex
	records []*Record
}

// New returns a board that logs to log and counts in reg; nil: it counts for itself.
func New(log *slog.Logger, reg prometheus.Registerer) (*Board, error) {
	b := &Board{log: log, total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freshet_alarms_total",
		Help: "Things that an operator must know, by kind.",
	}, []string{"kind"})}
	for _, k := range Kinds() {
		b.total.WithLabelValues(string(k))
	}
	if reg == nil {
		return b, nil
	}
	return b, reg.Register(b.total)
}

// Raise counts an alarm and logs it. The message is a whole sentence for the operator: what, where, what to do. It
// must hold no row value, no key and no secret, and be the same for the same cause, since repeats are recognised by it.
func (b *Board) Raise(k Kind, message string) {
	if b == nil {
		slog.Default().Error("alarm", "kind", k, "message", message)
		return
	}
	b.total.WithLabelValues(string(k)).Inc()
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.find(k, message)
	if r == nil {
		r = &Record{Kind: k, Message: message, First: now}
		if b.records = append(b.records, r); len(b.records) > keep {
			b.records = slices.Delete(b.records, 0, 1)
		}
	}
	r.Last = now
	r.Count++
	if now.Sub(r.logged) < quiet {
		r.unlogged++
		return
	}
	b.log.LogAttrs(context.Background(), slog.LevelError, "alarm",
		slog.String("kind", string(k)), slog.String("message", message), slog.Int("repeats", r.unlogged))
	r.logged, r.unlogged = now, 0
}

func (b *Board) find(k Kind, message string) *Record {
	for _, r := range b.records {
		if r.Kind == k && r.Message == message {
			return r
		}
	}
	return nil
}

// Records returns the last alarms, oldest first.
func (b *Board) Records() []Record {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Record, len(b.records))
	for i, r := range b.records {
		out[i] = *r
	}
	return out
}
