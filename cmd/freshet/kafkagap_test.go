package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// gappedReader is a gapped site around Kafka: the reader is away when the source has the gap, and the invalidator runs
// on. The site is that of the invalidator.
type gappedReader struct {
	*gapped
	reader  *site
	reading *testbed.Running
}

func newGappedReader(t *testing.T, source *testbed.Server) *gappedReader {
	t.Helper()
	g := newGapped(t, source)
	s := g.around(t, testbed.SharedKafka(t))
	g.site = s.part("invalidator")
	return &gappedReader{gapped: g, reader: s.part("reader")}
}

// run starts both.
func (g *gappedReader) run() {
	g.t.Helper()
	g.read()
	g.start("invalidator")
	g.reader.awaitFresh()
	g.awaitFresh()
}

func (g *gappedReader) read() { g.reading = g.reader.start("reader") }

// leave stops the reader.
func (g *gappedReader) leave() {
	g.t.Helper()
	if code := g.reading.Stop(g.t, patience); code != exitDone {
		g.t.Fatalf("exit code %d", code)
	}
}

// loss is what a source loses.
type loss struct {
	what   string
	source database
}

// The reader finds the gap, and the invalidators forget all keys.
func TestAroundKafkaAGapIsAnsweredByForgettingAllKeys(t *testing.T) {
	t.Parallel()
	var all []loss
	for _, what := range slices.Sorted(maps.Keys(losses)) {
		for _, source := range gapSources {
			all = append(all, loss{what, source})
		}
	}
	for _, l := range testbed.Some(t, all) {
		t.Run(l.what+"/"+l.source.name, func(t *testing.T) {
			t.Parallel()
			g := newGappedReader(t, l.source.start(t))
			if l.what == "restored" {
				g.backUp()
			}
			g.run()
			g.fill()
			g.file, g.pos = g.source.BinlogPosition(t)
			g.finishedUpTo(rowsBefore + 1)
			g.leave()
			for id := range rowsBefore {
				g.cache(fmt.Sprintf("product:%d", id))
			}
			losses[l.what](g.gapped)
			g.read()
			g.passed()
			g.leave()
			if strings.Contains(g.reading.Stderr(), "soon after another one") {
				t.Errorf("a gap came again:\n%s", g.reading.Stderr())
			}
			g.read() // without a gap
			g.goesOn()
		})
	}
}

// passed waits until the reader has found the gap, and the invalidator has forgotten all that may be stale, and no
// more.
func (g *gappedReader) passed() {
	g.t.Helper()
	g.reader.await("the gap is in doubt", func(st *app.Status) bool { return raised(st, alarm.BinlogGap) })
	g.forgotten()
	g.goesOn()
	undoubted(g.reader, g.site)
}

func anXATransactionThatWasPreparedWithinTheGapIsInDoubtAroundKafka(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		g := newGappedReader(t, source)
		g.run()
		g.write(1)
		g.write(2)
		g.prepare("UPDATE shop.product SET price = 99 WHERE id = 1")
		g.finishedUpTo(3)
		g.leave()
		g.source.Exec(t, "XA COMMIT 'a'")
		g.prepare("UPDATE shop.product SET price = 99 WHERE id = 2")
		g.source.PurgeBinlogs(t)
		g.read()
		g.reader.await("the gap is in doubt", func(st *app.Status) bool { return raised(st, alarm.BinlogGap) })
		undoubted(g.reader, g.site)
		g.cache("product:2")
		g.cache("other:1")
		g.source.Exec(t, "XA COMMIT 'a'")
		g.gone("product:2")
		undoubted(g.reader, g.site)
		g.kept("other:1")
	})
}

// What an XA transaction changed that was prepared before reading began, nobody has read.
func TestAroundKafkaAnXATransactionThatWasPreparedBeforeReadingBeganIsInDoubt(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		g := newGappedReader(t, source)
		g.write(1)
		g.prepare("UPDATE shop.product SET price = 99 WHERE id = 1")
		g.run()
		g.cache("product:1")
		g.cache("other:1")
		g.source.Exec(t, "XA COMMIT 'a'")
		g.reader.await("it is in doubt", func(st *app.Status) bool { return raised(st, alarm.XAUnread) })
		g.gone("product:1")
		undoubted(g.reader, g.site)
		g.kept("other:1")
	})
}
