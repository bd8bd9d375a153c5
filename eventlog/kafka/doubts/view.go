package doubts

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// The bounds of what is kept in memory.
const (
	maxRecord = 512 << 10 // bytes of one record; freshet's are shorter
	maxBytes  = 16 << 20  // bytes of all
)

// view is what the topic says, as far as it was read or written here.
type view struct {
	kept map[string]kept
	size int
	// left is set when there was no room for all that is kept.
	left bool
}

// kept is what the last record of a key says.
type kept struct {
	offset int64
	value  []byte // nil: it removes the key; kept until what was written before it has been read
	at     time.Time
	// doubt is what the value says, once it was asked for. It is not changed any more.
	doubt *doubt.Doubt
}

func newView() *view { return &view{kept: map[string]kept{}} }

// take takes over a record that was read, and reports whether it says anything new.
func (v *view) take(r *broker.Record) bool {
	key := string(r.Key)
	if len(key)+len(r.Value) > maxRecord || !strings.HasPrefix(key, doubtPrefix) && !strings.HasPrefix(key, factPrefix) {
		return false // somebody else's
	}
	return v.apply(r.Offset, key, r.Value, r.Time)
}

// apply takes over what the record at an offset says, unless a later one of its key is known, and reports whether that
// is anything new.
func (v *view) apply(offset int64, key string, value []byte, at time.Time) bool {
	old, known := v.kept[key]
	if known && old.offset >= offset {
		return false
	}
	size := v.size + len(key) + len(value)
	if known {
		size -= len(key) + len(old.value)
	}
	if value != nil && size > maxBytes {
		v.left = true
		return true
	}
	v.size, v.kept[key] = size, kept{offset: offset, value: bytes.Clone(value), at: at}
	return value != nil || old.value != nil
}

// forget forgets removals when everything before an offset has been read.
func (v *view) forget(before int64) {
	for key, r := range v.kept {
		if r.value == nil && r.offset < before {
			delete(v.kept, key)
			v.size -= len(key)
		}
	}
}

// lacks returns the keys of another view, sorted, that this one does not know at all, not as removed either.
func (v *view) lacks(other *view) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(other.kept)) {
		if _, known := v.kept[key]; !known && other.kept[key].value != nil {
			keys = append(keys, key)
		}
	}
	return keys
}
