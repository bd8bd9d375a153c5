package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// Of two databases whose readers have the same source.name and topic, only one is read: the reader of the other ends,
// and everybody else says that keys may be stale, until it has a name of its own.
func TestTwoDatabasesUnderOneNameAreNotFresh(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	for name, start := range map[string]func() *testbed.Server{
		"mysql":   func() *testbed.Server { return testbed.MySQL(t) },
		"mariadb": func() *testbed.Server { return testbed.MariaDB(t, "--binlog-row-metadata=FULL", "--server-id=1") },
	} {
		t.Run(name, func(t *testing.T) {
			first := newSite(t, start()).around(t, kafka)
			second := *first
			second.source = start()
			// It has the same mappings, and other keys all the same, or others.
			lacked, stale := "product:{id}", "product:5000000000"
			if name == "mariadb" {
				lacked, stale = "parcel:{id}", "parcel:2"
				second.mappings = `[{table: shop.product, keys: ["product:{id}", "parcel:{id}"]}]`
			}
			second.source.MayRead(t, "shop.*")
			second.source.Exec(t, "CREATE DATABASE shop",
				"CREATE TABLE shop.product (id BIGINT PRIMARY KEY, price INT NOT NULL)")
			reader, invalidator, other := first.part("reader"), first.part("invalidator"), second.part("reader")
			reading, deleting := reader.start("reader"), invalidator.start("invalidator")
			invalidator.awaitFresh()
			first.source.Exec(t, "SET timestamp=1700000000", "INSERT INTO shop.product VALUES (1000, 1)",
				"SET timestamp=DEFAULT")
			committed := func(st *app.Status) bool { return st.Checkpoint != nil && !st.Checkpoint.Committed.IsZero() }
			reader.await("it is finished", committed)
			for id := range 4 {
				other.write(id)
			}

			words := []string{"two databases under one source.name", "source default", second.source.Addr, "position set"}
			other.refused(exitGap, words, "reader")
			invalidator.await("it says that keys may be stale", func(st *app.Status) bool {
				return st.State == app.Doubtful && len(st.Doubts) == 1 && st.Doubts[0].Cause == alarm.SourceShared &&
					strings.Contains(st.Doubts[0].Message, second.source.Addr)
			})
			// It does not go on where the other was, either.
			if code := reading.Stop(t, patience); code != exitDone {
				t.Errorf("the reader of the first database: exit code %d", code)
			}
			other.halted(words)
			was := reader.ask("position", "show")
			reading = reader.start("reader")
			reader.await("it goes on", func(st *app.Status) bool { return st.Source.Connected })
			if now := reader.ask("position", "show"); now != was {
				t.Errorf("the position was\n%s, is\n%s", was, now)
			}
			// Nobody knows the keys of the other one before it has a name of its own. That its mappings differ may be in
			// doubt as well: it led for a moment.
			shared := func(st *app.Status) *doubt.Doubt {
				i := slices.IndexFunc(st.Doubts, func(d doubt.Doubt) bool { return d.Cause == alarm.SourceShared })
				if i < 0 {
					t.Fatalf("that the name is shared is in doubt no more: %+v", st.Doubts)
				}
				return &st.Doubts[i]
			}
			asked := shared(invalidator.status()).ID
			invalidator.ask("doubts", "answer", asked)
			invalidator.await("the answer is that nobody knows them", func(st *app.Status) bool {
				d := shared(st)
				return d.ID == asked && d.Stuck && strings.Contains(d.Answer, lacked)
			})

			own := second.part("reader")
			own.env = append(own.env[:len(own.env):len(own.env)], "FRESHET_SOURCE_NAME=other")
			reads := own.start("reader")
			own.await("it reads", func(st *app.Status) bool { return st.Source.Connected })
			own.cache("product:7")
			own.write(7)
			own.gone("product:7")
			// What it has missed is forgotten, by its own mappings.
			own.cache(stale)
			invalidator.ask("doubts", "answer", "--wait", asked)
			if own.cached(stale) {
				t.Error("a key of the other database is still cached")
			}
			for _, r := range []*testbed.Running{reading, reads, deleting} {
				if code := r.Stop(t, patience); code != exitDone {
					t.Errorf("exit code %d", code)
				}
			}
		})
	}
}
