package doubts

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

func (v *view) read(offset int64, key, value string) bool {
	r := broker.Record{Offset: offset, Key: []byte(key)}
	if value != "" {
		r.Value = []byte(value)
	}
	return v.take(&r)
}

func TestAnOlderRecordDoesNotUndoANewerOne(t *testing.T) {
	v := newView()
	v.apply(5, "doubt/a", nil, time.Now()) // written here, before 3 was read
	if v.read(3, "doubt/a", "old") || v.kept["doubt/a"].value != nil {
		t.Fatal("the dismissal is undone")
	}
	v.read(5, "doubt/a", "")
	v.forget(6)
	if len(v.kept) != 0 || v.size != 0 {
		t.Fatalf("%+v", v)
	}
	if !v.read(7, "doubt/a", "again") {
		t.Fatal("it came again")
	}
}

func TestTheViewIsBounded(t *testing.T) {
	v := newView()
	value := string(make([]byte, 256<<10))
	for i := range 1000 {
		v.read(int64(i), fmt.Sprint("doubt/", i), value)
	}
	if v.size > maxBytes || !v.left {
		t.Fatalf("%d bytes, left %v", v.size, v.left)
	}
	v.read(2000, "doubt/x", string(make([]byte, maxRecord)))
	if _, known := v.kept["doubt/x"]; known {
		t.Fatal("a huge record is kept")
	}
}

func TestWhatIsRemovedIsNotLacking(t *testing.T) {
	known, fresh := newView(), newView()
	for i, key := range []string{"doubt/a", "doubt/b", "doubt/c", "fact/d"} {
		known.read(int64(i), key, "x")
	}
	fresh.read(0, "doubt/a", "y")
	fresh.read(1, "doubt/b", "")
	if got := fresh.lacks(known); !slices.Equal(got, []string{"doubt/c", "fact/d"}) {
		t.Fatal(got)
	}
}

// All doubts are asked for whenever one of them comes, in each process.
func TestADoubtThatIsKeptIsReadOnce(t *testing.T) {
	k := &Keeper{view: newView(), loaded: make(chan struct{})}
	close(k.loaded)
	kept := func() *event.Table {
		t.Helper()
		all, err := k.Doubts(t.Context())
		must(t, err)
		return all[0].Definitions[0]
	}
	k.view.read(1, "doubt/a", `{"id": "a", "definitions": [{"name": "t"}]}`)
	first := kept()
	k.view.read(2, "doubt/b", "")
	if kept() != first {
		t.Error("it was read again though it has not changed")
	}
	k.view.read(3, "doubt/a", `{"id": "a", "definitions": [{"name": "u"}]}`)
	if is := kept(); is.Name != "u" {
		t.Errorf("it has changed, and its definition is that of %q", is.Name)
	}
}
