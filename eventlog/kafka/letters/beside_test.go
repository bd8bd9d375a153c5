package letters

import (
	"testing"
	"time"

	"github.com/freshet/freshet/retry"
)

// A topic that takes nothing, for instance since its partition has no leader, holds up what goes to others no longer
// than it takes to find out.
func TestATopicInTroubleHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start(r.store().Topics()[0])
	r.park(p.Store, entry(1, time.Second), entry(2, time.Second))
	got := p.due(ever())
	r.want("due", got, "user:1", "user:2")
	r.kafka.DeleteTopic(t, p.Topics()[1])
	waits, dead := got[0], got[1]
	waits.Due, dead.Due = time.Now().Add(time.Minute), time.Time{}
	if err := p.Settle(t.Context(), nil, []retry.Entry{waits, dead}); err == nil {
		t.Error("an entry was parked in a topic that is not there")
	}
	r.want("dead", p.all(t, retry.Filter{}), "user:2")
	r.want("still to be tried", p.due(ever()), "user:1")
}
