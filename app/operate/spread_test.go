package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/proof/testbed"
)

// spreading is a topic to which readers of two sources write, of which one is for a while of a version that keeps
// nothing. Partitions are added, and the topic is made again.
type spreading struct {
	t     *rapid.T
	facts *doubttest.Memory
	// logs hold the keys of each partition, by source and key.
	logs [][]string
	old  bool // the reader of source a is of the earlier version
}

func (s *spreading) ends(context.Context) (ends []int64, err error) {
	for _, log := range s.logs {
		ends = append(ends, int64(len(log)))
	}
	return ends, nil
}

func (s *spreading) write(source, key string) {
	n := len(s.logs)
	if source != "a" || !s.old {
		if err := KeepSpread(s.t.Context(), s.facts, source, n, s.ends); err != nil {
			s.t.Fatal(err)
		}
	}
	p := producer.Partition(key, n)
	s.logs[p] = append(s.logs[p], source+" "+key)
}

// lose has each partition lose all that it holds, or the second half, and looks whether each key of that is found.
func (s *spreading) lose() {
	for _, source := range []string{"a", "a/1"} {
		spread, err := ReadSpread(s.t.Context(), s.facts, source)
		if err != nil {
			s.t.Fatal(err)
		}
		for p, log := range s.logs {
			for _, from := range []int{0, len(log) / 2} {
				holds := spread.Holds(&doubt.Lost{Partition: p, From: int64(from)})
				for _, of := range log[from:] {
					name, key, _ := strings.Cut(of, " ")
					if name == source && holds != nil && !holds(key) {
						s.t.Fatalf("%s of source %s was lost from partition %d at %d or later, and is not looked for: %+v", key,
							source, p, from, spread)
					}
				}
			}
		}
	}
}

// Wherever a key was by the time that it was written, it is among those that lost records of that partition can have
// been about.
func TestNoKeyOfALostRecordIsLeftOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &spreading{t: t, facts: &doubttest.Memory{}, old: rapid.Bool().Draw(t, "old")}
		s.logs = make([][]string, rapid.IntRange(1, 4).Draw(t, "partitions"))
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				source := rapid.SampledFrom([]string{"a", "a/1"}).Draw(t, "source")
				for _, id := range rapid.SliceOfN(rapid.IntRange(1, 50), 1, 10).Draw(t, "keys") {
					s.write(source, fmt.Sprintf("product:%d", id))
				}
			},
			"add partitions": func(t *rapid.T) {
				if len(s.logs) < 16 {
					s.logs = append(s.logs, make([][]string, rapid.IntRange(1, 4).Draw(t, "more"))...)
				}
			},
			"upgrade": func(*rapid.T) { s.old = false },
			"made again": func(t *rapid.T) {
				s.logs = make([][]string, rapid.IntRange(1, 12).Draw(t, "partitions again"))
			},
			"": func(*rapid.T) { s.lose() }, // at any time
		})
	})
}

func TestKeysOfOtherPartitionsAreNotThoseOfLostRecords(t *testing.T) {
	f := &doubttest.Memory{}
	keep := func(ends ...int64) {
		testbed.Must(t, KeepSpread(t.Context(), f, "main", len(ends), func(context.Context) ([]int64, error) {
			return ends, nil
		}))
	}
	holds := func(lost ...*doubt.Lost) (held []int, known bool) {
		spread, err := ReadSpread(t.Context(), f, "main")
		testbed.Must(t, err)
		is := spread.Holds(lost...)
		for id := range 12 {
			if is != nil && is(fmt.Sprintf("product:%d", id)) {
				held = append(held, id)
			}
		}
		return held, is != nil
	}
	in := func(partition, n int) (ids []int) {
		for id := range 12 {
			if producer.Partition(fmt.Sprintf("product:%d", id), n) == partition {
				ids = append(ids, id)
			}
		}
		return ids
	}
	if _, known := holds(&doubt.Lost{}); known {
		t.Error("nothing is kept, and it is known what is lost")
	}
	keep(0, 7, 0)
	if held, _ := holds(&doubt.Lost{Partition: 1, From: 7}); !slices.Equal(held, in(1, 3)) {
		t.Errorf("of partition 1 of 3: %v", held)
	}
	if _, known := holds(&doubt.Lost{Partition: 1, From: 6}); known {
		t.Error("it was written before anything was kept, and it is known what is lost")
	}
	keep(1, 9, 1, 0)
	both := slices.Compact(slices.Sorted(slices.Values(append(in(1, 3), in(1, 4)...))))
	if held, _ := holds(&doubt.Lost{Partition: 1, From: 8}); !slices.Equal(held, both) || len(both) == 12 {
		t.Errorf("of partition 1 of 3 and of 4: %v, want %v", held, both)
	}
	if held, _ := holds(&doubt.Lost{Partition: 3}); !slices.Equal(held, in(3, 4)) {
		t.Errorf("of partition 3, which was added: %v", held)
	}
	if held, known := holds(&doubt.Lost{Partition: 3}, nil); known {
		t.Errorf("one of two is not known, and it is %v", held)
	}
	two := slices.Compact(slices.Sorted(slices.Values(slices.Concat(in(0, 3), in(0, 4), in(3, 4)))))
	if held, _ := holds(&doubt.Lost{}, &doubt.Lost{Partition: 3}); !slices.Equal(held, two) {
		t.Errorf("of partitions 0 and 3: %v, want %v", held, two)
	}
	testbed.Must(t, f.SetFact(t.Context(), "partitions/main/5", []byte("garbage")))
	if _, err := ReadSpread(t.Context(), f, "main"); err == nil {
		t.Error("what cannot be read is passed over")
	}
}

func TestWhatCannotBeKeptOfTheSpreadIsAnError(t *testing.T) {
	away := errors.New("away")
	none := func(context.Context) ([]int64, error) { return nil, away }
	f := &doubttest.Memory{}
	if err := KeepSpread(t.Context(), f, "main", 3, none); !errors.Is(err, away) {
		t.Error(err)
	}
	if kept, err := f.FactsUnder(t.Context(), ""); err != nil || len(kept) > 0 {
		t.Error(kept, err)
	}
	f.Fail = func(context.Context, string, string) error { return away }
	if err := KeepSpread(t.Context(), f, "main", 3, none); !errors.Is(err, away) {
		t.Error(err)
	}
	if _, err := ReadSpread(t.Context(), f, "main"); !errors.Is(err, away) {
		t.Error(err)
	}
}
