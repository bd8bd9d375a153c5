package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog/kafka/producer"
)

// Spread says over how many partitions the keys of a source have ever been spread in the topic: where partitions are
// added, keys move. Its reader keeps each number before it uses it. Each is a fact of its own, which is never written
// again, so that no reader takes away what another has kept.
type Spread []spreadOver

// spreadOver is one number of partitions.
type spreadOver struct {
	partitions int
	// Ends are where these ended before the number was used; one that is not among them was not there. What was written
	// before may have been spread over a number that an earlier version of freshet has not kept.
	Ends []int64 `json:"ends"`
}

// spreadFact is what the names of these facts begin with; the source, a slash and the number follow.
const spreadFact = "partitions/"

// KeepSpread keeps that the keys of a source are spread over so many partitions from now on.
func KeepSpread(ctx context.Context, facts doubt.Facts, source string, partitions int,
	ends func(context.Context) ([]int64, error),
) error {
	name := fmt.Sprintf("%s%s/%d", spreadFact, source, partitions)
	is, err := facts.Fact(ctx, name)
	if err != nil || is != nil {
		return err
	}
	over := spreadOver{}
	if over.Ends, err = ends(ctx); err != nil {
		return err
	}
	text, err := json.Marshal(over)
	if err == nil {
		err = facts.SetFact(ctx, name, text)
	}
	if err != nil {
		return fmt.Errorf("it cannot be kept that the keys of source %s are spread over %d partitions: %w", source,
			partitions, err)
	}
	return nil
}

// ReadSpread returns over how many partitions the keys of a source have been spread.
func ReadSpread(ctx context.Context, facts doubt.SharedFacts, source string) (all Spread, err error) {
	kept, err := facts.FactsUnder(ctx, spreadFact+source+"/")
	for name, text := range kept {
		n, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:])
		if name != fmt.Sprintf("%s%s/%d", spreadFact, source, n) {
			continue // of a source whose name goes on
		}
		over := spreadOver{partitions: n}
		if err == nil {
			err = json.Unmarshal(text, &over)
		}
		if err != nil || n < 1 {
			return nil, fmt.Errorf("over how many partitions the keys of source %s are spread cannot be read: %s", source, name)
		}
		all = append(all, over)
	}
	return all, err
}

// Holds returns which keys lost records can have been about, without the prefix; nil: that is not known, so that it can
// have been any.
func (s Spread) Holds(lost ...*doubt.Lost) func(key string) bool {
	if slices.ContainsFunc(lost, func(l *doubt.Lost) bool { return !s.knows(l) }) {
		return nil
	}
	return func(key string) bool {
		return slices.ContainsFunc(s, func(over spreadOver) bool {
			in := producer.Partition(key, over.partitions)
			return slices.ContainsFunc(lost, func(l *doubt.Lost) bool { return l.Partition == in })
		})
	}
}

// knows reports whether all numbers are known that lost records can have been spread over.
func (s Spread) knows(l *doubt.Lost) bool {
	return l != nil && slices.ContainsFunc(s, func(over spreadOver) bool {
		return l.Partition >= len(over.Ends) || over.Ends[l.Partition] <= l.From
	})
}
