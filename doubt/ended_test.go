package doubt_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/doubttest"
)

func TestHowDoubtsEndedIsRemembered(t *testing.T) {
	b, _ := open(t, &doubttest.Memory{})
	for i := range 12 {
		d := truncated(fmt.Sprintf("shop.t%d", i)).Named()
		must(t, b.Record(t.Context(), d))
		b.Say(d.ID, "first of two passes")
		if i == 11 {
			must(t, b.Dismiss(t.Context(), d.ID, time.Time{}))
		} else {
			must(t, b.Answered(t.Context(), d.ID, time.Time{}, "3 keys forgotten"))
		}
	}
	ended := b.Ended()
	if len(ended) != 10 || ended[0].Tables[0] != "shop.t11" || ended[9].Tables[0] != "shop.t2" {
		t.Fatalf("%d: %+v", len(ended), ended)
	}
	if e := ended[0]; e.How != doubt.HowDismissed || e.Answer != "first of two passes" || e.Ended.Before(e.Since) {
		t.Errorf("%+v", e)
	}
	if e := ended[1]; e.How != doubt.HowAnswered || e.Answer != "3 keys forgotten" {
		t.Errorf("%+v", e)
	}
	if err := b.Dismiss(t.Context(), ended[0].ID, time.Time{}); err == nil || len(b.Ended()) != 10 {
		t.Errorf("%v, %+v", err, b.Ended())
	}
}
