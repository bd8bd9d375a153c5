package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 123456789, time.UTC)

// fakeDoubts holds doubts until they are dismissed.
type fakeDoubts struct{ all []Doubt }

func (f *fakeDoubts) ListDoubts(context.Context) ([]Doubt, error) { return f.all, nil }

func (f *fakeDoubts) DismissDoubt(_ context.Context, id string, seen time.Time) error {
	i := slices.IndexFunc(f.all, func(d Doubt) bool { return d.ID == id })
	switch {
	case i < 0:
		return ErrNoDoubt
	case !seen.IsZero() && f.all[i].Last.After(seen):
		return ErrCameAgain
	}
	f.all = slices.Delete(f.all, i, i+1)
	return nil
}

func (f *fakeDoubts) AnswerDoubt(_ context.Context, id string) error {
	i := slices.IndexFunc(f.all, func(d Doubt) bool { return d.ID == id })
	if i < 0 {
		return ErrNoDoubt
	}
	f.all[i].Asked = true
	return nil
}

func (f *fakeDoubts) EndedDoubt(_ context.Context, id string) (EndedDoubt, error) {
	switch id {
	case "e5":
		return EndedDoubt{ID: id, Last: noon, Ended: noon, How: DoubtDismissed, Answer: "first of two passes"}, nil
	case "broken":
		return EndedDoubt{}, errors.New("no broker answers")
	}
	return EndedDoubt{}, ErrNoDoubt
}

func TestHowADoubtEndedIsShown(t *testing.T) {
	c := NewClient(start(t, Options{}).url, "", nil)
	if e, err := c.EndedDoubt(t.Context(), "e5"); err != nil || e != (EndedDoubt{
		ID: "e5", Last: noon, Ended: noon, How: DoubtDismissed, Answer: "first of two passes",
	}) {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := c.EndedDoubt(t.Context(), "x/y"); !errors.Is(err, ErrNoDoubt) {
		t.Error(err)
	}
	if _, err := c.EndedDoubt(t.Context(), "broken"); err == nil || errors.Is(err, ErrNoDoubt) {
		t.Error(err)
	}
}

func TestADoubtIsAnsweredForWhoHoldsTheToken(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	stranger, c := NewClient(f.url, "", nil), NewClient(f.url, "hush", nil)
	if err := stranger.AnswerDoubt(t.Context(), "a1"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
	if err := c.AnswerDoubt(t.Context(), "x/y"); err == nil || !strings.Contains(err.Error(), `there is no doubt "x/y"`) {
		t.Error(err)
	}
	if err := c.AnswerDoubt(t.Context(), "a1"); err != nil {
		t.Error(err)
	}
	if all, err := stranger.ListDoubts(t.Context()); err != nil || !all[0].Asked || all[1].Asked {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestHowADoubtIsAnsweredIsShown(t *testing.T) {
	f := start(t, Options{})
	code, body := get(t, "GET", f.url+"/doubts/c3", "", "")
	for _, want := range []string{
		`"templates": [`, `"product:{id}"`, `"pattern": "product:1*"`, `"asked": true`, `"answer": "first of two passes"`,
		`"stuck": true`,
	} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d %s, want %s", code, body, want)
		}
	}
	_, body = get(t, "GET", f.url+"/doubts/a1", "", "")
	for _, word := range []string{"templates", "pattern", "asked", "answer", "stuck"} {
		if strings.Contains(body, word) {
			t.Errorf("%s, though there is nothing to say: %s", word, body)
		}
	}
}

func TestDoubtsAreShownToAllAndDismissedByWhoHoldsTheToken(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	stranger, c := NewClient(f.url, "", nil), NewClient(f.url, "hush", nil)
	all, err := stranger.ListDoubts(t.Context())
	if err != nil || len(all) != 3 || all[0].ID != "a1" || !all[0].Last.Equal(noon) {
		t.Fatalf("%+v, %v", all, err)
	}
	refused := func(err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	refused(stranger.DismissDoubt(t.Context(), "a1", noon), "401")
	refused(c.DismissDoubt(t.Context(), "nothing", noon), `there is no doubt "nothing"`)
	refused(c.DismissDoubt(t.Context(), "a1", noon.Add(-time.Nanosecond)), "has come again")
	if err := c.DismissDoubt(t.Context(), "a1", noon); err != nil {
		t.Error(err)
	}
	if err := c.DismissDoubt(t.Context(), "b2", time.Time{}); err != nil {
		t.Error(err)
	}
	if all, err := c.ListDoubts(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestWithoutATokenNothingIsDismissed(t *testing.T) {
	f := start(t, Options{})
	err := NewClient(f.url, "", nil).DismissDoubt(t.Context(), "a1", noon)
	if err == nil || !strings.Contains(err.Error(), "admin.token") {
		t.Error(err)
	}
	for path, want := range map[string]int{"/doubts": 200, "/doubts/a1": 200, "/doubts/x": 404} {
		res, err := http.Get(f.url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}
