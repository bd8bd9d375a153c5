package alarm

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestARepeatedAlarmIsCountedAndLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		reg := prometheus.NewRegistry()
		b, err := New(slog.New(slog.NewTextHandler(&out, nil)), reg)
		if err != nil {
			t.Fatal(err)
		}
		lines := func() int { return strings.Count(out.String(), "\n") }
		for range 3 {
			b.Raise(RedisAway, "redis is away")
			time.Sleep(time.Second)
		}
		if lines() != 1 {
			t.Fatalf("logged %d times in three seconds:\n%s", lines(), out.String())
		}
		b.Raise(RedisAway, "another redis is away")
		if lines() != 2 {
			t.Fatal("other words are another alarm")
		}
		time.Sleep(time.Minute)
		b.Raise(RedisAway, "redis is away")
		if lines() != 3 || !strings.Contains(out.String(), "repeats=2") {
			t.Fatalf("a minute later it is logged again, with how often it came:\n%s", out.String())
		}
		r := b.Records()
		if len(r) != 2 || r[0].Count != 4 || r[0].Last.Sub(r[0].First) != time.Minute+3*time.Second {
			t.Fatalf("records %+v", r)
		}
		if n := testutil.ToFloat64(b.total.WithLabelValues(string(RedisAway))); n != 5 {
			t.Fatalf("counted %v", n)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Fatalf("%v, %v", problems, err)
		}
	})
}

func TestTheBoardIsBounded(t *testing.T) {
	b, err := New(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * keep {
		b.Raise(ColumnAbsent, strings.Repeat("x", i))
	}
	if r := b.Records(); len(r) != keep || len(r[keep-1].Message) != 3*keep-1 {
		t.Fatalf("%d records, the newest %q", len(r), r[len(r)-1].Message)
	}
}

func TestEveryKindIsListed(t *testing.T) {
	seen := map[Kind]bool{}
	for _, k := range Kinds() {
		if seen[k] || k == "" {
			t.Errorf("%q is listed twice or empty", k)
		}
		seen[k] = true
	}
}
