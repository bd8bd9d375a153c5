package admin

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// fakeWarming knows the table shop.product, and the warm-up w1.
type fakeWarming struct {
	asked     []WarmUp
	cancelled []string
}

func (f *fakeWarming) Warm(_ context.Context, w WarmUp) (string, error) {
	if w.Table != "shop.product" {
		return "", Unfit("no mapping is for " + w.Table)
	}
	f.asked = append(f.asked, w)
	return "w1", nil
}

func (f *fakeWarming) CancelWarmUp(_ context.Context, id string) error {
	if id != "w1" {
		return ErrNoWarmUp
	}
	f.cancelled = append(f.cancelled, id)
	return nil
}

func TestAWarmUpIsAskedForAndCancelled(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	c := NewClient(f.url, "hush", nil)
	w := WarmUp{Table: "shop.product", Where: "price < 1 AND name = '<ü>'"}
	if id, err := c.Warm(t.Context(), w); err != nil || id != "w1" || !reflect.DeepEqual(f.warming.asked, []WarmUp{w}) {
		t.Errorf("%s, %v, asked for %+v", id, err, f.warming.asked)
	}
	var unfit Unfit
	if _, err := c.Warm(t.Context(), WarmUp{Table: "shop.none"}); !errors.As(err, &unfit) {
		t.Errorf("another table: %v", err)
	}
	for _, wrong := range []WarmUp{{}, {Where: "1"}, {Table: "shop.product", Where: strings.Repeat("x", maxWhere+1)}} {
		if _, err := c.Warm(t.Context(), wrong); !errors.As(err, &unfit) {
			t.Errorf("%.40v: %v", wrong, err)
		}
	}
	if err := c.CancelWarmUp(t.Context(), "w1"); err != nil || len(f.warming.cancelled) != 1 {
		t.Errorf("%v, cancelled %v", err, f.warming.cancelled)
	}
	if err := c.CancelWarmUp(t.Context(), "w/2"); !errors.Is(err, ErrNoWarmUp) {
		t.Errorf("an unknown one: %v", err)
	}
	var r *refusal
	_, err := NewClient(f.url, "guess", nil).Warm(t.Context(), w)
	if !errors.As(err, &r) || r.code != http.StatusUnauthorized || len(f.warming.asked) != 1 {
		t.Errorf("without the token: %v", err)
	}
}
