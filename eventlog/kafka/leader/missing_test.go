package leader

import (
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/retry"
)

// Without its topic the group gives the source to nobody: that is not standing by.
func TestAReaderWhoseCheckpointTopicIsDeletedSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failed := make(chan error, 100)
	a := r.start(r.client, Options{Reporter: &retry.Reporter{Failed: func(err error) { failed <- err }}})
	must(t, a.leads().Begin(place(4)))
	r.cluster.DeleteTopic(t, r.name())
	_ = a.loses()
	for deadline := time.After(time.Minute); ; {
		select {
		case err := <-failed:
			if !strings.Contains(err.Error(), r.name()) {
				t.Fatal(err)
			}
			if s := a.Status(); s.Leading || s.Standby {
				t.Errorf("it says %+v", s)
			}
			return
		case <-deadline:
			t.Fatalf("nobody is told; it says %+v", a.Status())
		}
	}
}
