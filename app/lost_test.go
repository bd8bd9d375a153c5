package app

import (
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
)

// What is lost of some partitions is answered by itself: one scope looks for all keys of the others, or for theirs.
func TestDoubtsAboutPartitionsAreAnsweredTogetherAfterTheOthers(t *testing.T) {
	b, err := doubt.New(&doubttest.Memory{}, nil, nil)
	must(t, err)
	must(t, b.Load(t.Context()))
	a := &answering{doubts: b, mine: func(*doubt.Doubt) bool { return true }, scoped: map[string]time.Time{}}
	add := func(subject string, d doubt.Doubt) {
		d.Group, d.Subject, d.Message, d.Asked = "g", subject, "lost", true
		must(t, b.Record(t.Context(), d))
	}
	due := func(want ...string) (ids []string) {
		t.Helper()
		var got []string
		for _, d := range a.due() {
			got, ids = append(got, d.Subject), append(ids, d.ID)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("due are %q, want %q", got, want)
		}
		return ids
	}
	add("t/3", doubt.Doubt{Cause: alarm.RecordsLost, Lost: &doubt.Lost{Partition: 3}})
	add("t/5", doubt.Doubt{Cause: alarm.RecordsLost, Lost: &doubt.Lost{Partition: 5}})
	add("t/7", doubt.Doubt{Cause: alarm.RecordsLost})
	for _, id := range due("t/7") {
		must(t, b.Dismiss(t.Context(), id, time.Time{}))
	}
	due("t/3", "t/5")
}

func TestAnAnswerSaysOfWhichPartitionsTheKeysWere(t *testing.T) {
	any := func(string) bool { return true }
	for want, parts := range map[string][]*part{
		"":                         {{}},
		" of partitions 3, 5 were": {{lost: []int{3, 5}, meant: any}, {lost: []int{3, 5}, meant: any}},
		", of any partition since it is not known over how many they were spread, were": {
			{lost: []int{3}, meant: any}, {lost: []int{3}},
		},
	} {
		if got := ofPartitions(parts); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
