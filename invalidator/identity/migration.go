package identity

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Valkey moves slots by itself (CLUSTER MIGRATESLOTS). The giver lets nobody write while the taker takes them, and no
// longer than some seconds. If the taker takes them after that, because it hung or the line to it did, they lack what
// the giver has acknowledged meanwhile. Then the giver says that the move has failed, and the slots are the taker's all
// the same.

// migration is a move of slots that a server began by itself, as it says.
type migration struct {
	slots SlotSet
	// to is the ID of the taker.
	to string
	// failed says that the giver does not know of its end, or that somebody has ended it.
	failed bool
}

// takenLate returns those of some slots, which a master has now, that it took although the last move of them has
// failed. moves are those that the giver has begun, the newest first.
func takenLate(moves []migration, slots SlotSet, by string) (late SlotSet) {
	for _, m := range moves {
		moved := slots.and(&m.slots)
		slots = slots.without(&moved) // what was before counts no more
		if m.failed && m.to == by {
			late.add(&moved)
		}
	}
	return late
}

// begunBy asks a server for the moves of slots that it began by itself. One that refuses to say knows of no such moves,
// or may not be asked.
func begunBy(ctx context.Context, r redis.Cmdable) ([]migration, error) {
	ctx, cancel := context.WithTimeout(ctx, asks)
	defer cancel()
	pipe := r.Pipeline()
	asked := pipe.Do(ctx, "cluster", "getslotmigrations")
	_, _ = pipe.Exec(ctx) // the error is the command's
	all, err := asked.Slice()
	var answer redis.Error
	if errors.As(err, &answer) {
		return nil, nil
	}
	var moves []migration
	for _, one := range all {
		if m, ok := parseMigration(one); ok {
			moves = append(moves, m)
		}
	}
	return moves, err
}

// parseMigration reads a move that the server which was asked began; false: another one did.
func parseMigration(reply any) (m migration, ok bool) {
	says := map[string]string{}
	switch of := reply.(type) {
	case map[any]any:
		for name, is := range of {
			name, _ := name.(string)
			says[name], _ = is.(string)
		}
	case []any:
		for i := 0; i+1 < len(of); i += 2 {
			name, _ := of[i].(string)
			says[name], _ = of[i+1].(string)
		}
	}
	if !strings.EqualFold(says["operation"], "export") {
		return m, false
	}
	m.to, m.failed = says["target_node"], says["state"] == "failed" || says["state"] == "cancelled"
	err := m.slots.UnmarshalText([]byte(says["slot_ranges"]))
	return m, err == nil
}
