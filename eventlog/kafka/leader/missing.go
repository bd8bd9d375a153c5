package leader

import (
	"context"
	"fmt"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// topicEvery is how often a reader that has no seat looks whether there is one. The client has the answer in memory.
const topicEvery = 2 * time.Second

// watchTopic tells of a checkpoint topic that is not there any more, until ctx ends: the group then gives the source to
// nobody, which looks to each reader as if it were given to another.
func (l *Leader) watchTopic(ctx context.Context, s *seat) {
	look := retry.Loop{Reporter: l.o.Reporter} // paced by the beat
	defer look.Stop()
	for retry.Beat(ctx, topicEvery) == nil {
		missing := false
		if is, _, _ := s.get(); is != seated {
			_, err := l.client.Partitions(ctx, l.name())
			missing = broker.Classify(err) == broker.Missing
		}
		s.missing.Store(missing)
		if !missing {
			look.Succeeded()
			continue
		}
		look.Failed(&broker.Error{
			Class: broker.Missing, What: "look at the position of source " + l.source,
			Err:    fmt.Errorf("topic %s does not exist any more", l.name()),
			Advice: "start freshet again, which says how to go on",
		})
	}
}
