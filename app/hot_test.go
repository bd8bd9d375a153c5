package app

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/hot"
)

// hottest has seen some keys of two tables, for a second.
func hottest(t *testing.T) *deleting {
	t.Helper()
	sketch, err := hot.New(hot.Options{})
	must(t, err)
	var b event.Batch
	b.Reset()
	b.AddOrigin(event.Origin{Table: "shop.user"})
	for range 3 {
		b.Add(append(b.Text(), "user:{secret@example.org}\x00"...), 1, event.ActionDelete)
	}
	b.AddOrigin(event.Origin{Table: "shop.product"})
	b.Add(append(b.Text(), strings.Repeat("p", 300)...), 1, event.ActionDelete)
	sketch.Count(b.Clone())
	return &deleting{hot: sketch, shared: &shared{}}
}

func TestTheStatusNamesTablesAndNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hottest(t)
		s := Status{Redis: &RedisStatus{}, Hot: p.hotNow(hotTables)}
		b, err := json.Marshal(s)
		must(t, err)
		if text := string(b); !strings.Contains(text,
			`"tables":[{"name":"shop.user","per_second":3,"low":3,"high":3},{"name":"shop.product",`) ||
			strings.Contains(text, "secret") || strings.Contains(text, `"keys":[`) {
			t.Error(text)
		}
		var out bytes.Buffer
		must(t, s.Print(&out))
		if !strings.Contains(out.String(), "hottest        shop.user 3.0/s, shop.product 1.0/s of 4.0/s keys") ||
			strings.Contains(out.String(), "secret") {
			t.Error(out.String())
		}
		if s := quiet(t).status(); s.Hot != nil {
			t.Error("a process that deletes no keys has hot tables")
		}
	})
}

func TestTheHottestKeysAreShownWhateverTheyHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hottest(t)
		b, err := json.Marshal(p.Hot())
		must(t, err)
		var s HotStatus
		must(t, json.Unmarshal(b, &s))
		if len(s.Keys) != 2 || s.Keys[0].Name != `"user:{secret@example.org}\x00"` || s.Keys[1].Length != 300 ||
			len(s.Keys[1].Name) != hot.MaxName {
			t.Errorf("%+v", s.Keys)
		}
		var out bytes.Buffer
		must(t, s.Print(&out))
		for _, want := range []string{
			"over about the last 2m0s: 4.0/s keys in all", `"user:{secret@example.org}\x00"  `,
			"pp… (300 bytes)", "1.0/s   exactly", "shop.product",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in\n%s", want, out.String())
			}
		}
	})
}

func TestAKeyThatIsNotPrintableIsQuoted(t *testing.T) {
	for key, want := range map[string]string{
		"user:17": "user:17", "{order}:17": "{order}:17", "": "", "größe:東京": "größe:東京", "a b": "a b",
		"a\nb": `"a\nb"`, "a\x00": `"a\x00"`, "\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`, "\x1b[2J": `"\x1b[2J"`,
		`"a"`: `"\"a\""`, "a\ufffdb": "\"a\ufffdb\"",
	} {
		if got := printable(key); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}

func TestTheLogSaysOnceAMinuteWhatIsHottestAndNamesNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
			p := hottest(t)
			var out bytes.Buffer
			p.options.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
			ctx, cancel := context.WithTimeout(t.Context(), 2*hotLogEvery+time.Second)
			must(t, p.logHot(ctx))
			cancel()
			text := out.String()
			if level > slog.LevelDebug {
				if text != "" {
					t.Errorf("at info: %s", text)
				}
				continue
			}
			if strings.Count(text, "\n") != 2 || !strings.Contains(text, `tables="[shop.user 0.0`) ||
				!strings.Contains(text, "hottest_keys=") ||
				strings.Contains(text, "secret") || strings.Contains(text, "pppp") {
				t.Errorf("in two minutes: %s", text)
			}
		}
	})
}
