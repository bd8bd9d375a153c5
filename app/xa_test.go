package app

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/eventlog/stash"
)

const xid = "X'6f72646572',X'',1"

func openStore(t *testing.T, dir string) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(dir, embedded.Options{})
	must(t, err)
	return s
}

// xaReader returns a reader that remembers in a store.
func xaReader(t *testing.T, s *embedded.Store) (*reader, *fakeLog) {
	r, l := newReader(t)
	r.xa = &xaMemory{store: keptXA{s.Stash()}}
	return r, l
}

// prepare reads a transaction of the rows at the positions, up to its XA PREPARE.
func prepare(t *testing.T, r *reader, xid string, positions ...uint64) {
	t.Helper()
	for _, pos := range positions {
		must(t, r.Row(row(pos, xid)))
	}
	must(t, r.Prepare(&event.Tx{XID: xid}, end(positions[len(positions)-1]+50)))
	must(t, r.Flush())
}

// resolve reads the XA COMMIT or XA ROLLBACK at a position, and returns which keys it made stale.
func resolve(t *testing.T, r *reader, l *fakeLog, xid string, commit bool, pos uint64) []string {
	t.Helper()
	l.batches = nil
	tx := &event.Tx{XID: xid}
	must(t, r.Resolve(commit, tx, version(1, 1, pos, 0), end(pos+50)))
	must(t, r.Flush())
	if n := len(l.batches); n == 0 || l.batches[n-1].End.Pos != pos+50 {
		t.Fatalf("the end is not handed on: %+v", l.batches)
	}
	for _, b := range l.batches {
		for i := range b.Len() {
			o := b.Origin(int(b.Invalidations[i].Origin))
			if v := b.Version(i); v.Pos != pos || o.Table != "shop.product" || o.D != time.Second || o.Mapping != 4 ||
				o.Tx.XID != xid {
				t.Fatalf("key %s is of %v, %+v", b.Key(i), v, o)
			}
		}
	}
	return l.keys()
}

func left(t *testing.T, s *embedded.Store) int {
	t.Helper()
	return len(s.Stash().List())
}

func TestAPreparedTransactionIsInvalidatedWhenItIsCommitted(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	must(t, s.Checkpoint().Begin(event.Position{
		Flavor: event.MariaDB, Server: "2", Epoch: 1, File: "binlog.000001",
		Pos: 4,
	}))
	r, l := xaReader(t, s)
	prepare(t, r, xid, 100, 200, 300)
	if got := l.keys(); len(got) != 3 {
		t.Errorf("at XA PREPARE: %q", got)
	}
	must(t, r.Row(row(400, ""))) // another transaction between the two
	must(t, r.Commit(&event.Tx{}, end(450)))
	must(t, r.Flush())
	if got := resolve(t, r, l, xid, true, 500); !slices.Equal(got, []string{"product:100", "product:200", "product:300"}) {
		t.Errorf("at XA COMMIT: %q", got)
	}
	if left(t, s) != 1 {
		t.Error("forgotten before the checkpoint has passed the XA COMMIT: a crash would lose its deletes")
	}
	s.Checkpoint().Advance(end(550))
	must(t, s.Checkpoint().Save())
	if left(t, s) != 0 {
		t.Error("still remembered behind the checkpoint")
	}
}

func TestAPreparedTransactionOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	r, _ := xaReader(t, s)
	prepare(t, r, xid, 100, 200)
	must(t, s.Close()) // as in a crash: nothing is saved but what is durable already

	s = openStore(t, dir)
	defer s.Close()
	r, l := xaReader(t, s)
	// The checkpoint may be before the XA PREPARE, so that it is read again: no key comes twice for it.
	prepare(t, r, xid, 100, 200)
	if got := resolve(t, r, l, xid, true, 500); !slices.Equal(got, []string{"product:100", "product:200"}) {
		t.Errorf("at XA COMMIT: %q", got)
	}
	// And so may it be before the XA COMMIT.
	if got := resolve(t, r, l, xid, true, 500); len(got) != 2 {
		t.Errorf("at the XA COMMIT that was read again: %q", got)
	}
}

// A connection broke within a transaction that the server which answers next does not have. What it wrote must not be
// written with what another one of the same XID commits.
func TestWhatNeverCameAgainIsNotCommittedWithAnotherOfItsXID(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	r, l := xaReader(t, s)
	of := func(pos, number uint64) *event.Change {
		c := row(pos, xid)
		c.Tx.GTID = event.GTID{Server: 2, Number: number}
		return c
	}
	must(t, r.Row(of(100, 7)))
	must(t, r.Flush())
	second := of(200, 8)
	must(t, r.Row(second))
	must(t, r.Prepare(second.Tx, end(250)))
	must(t, r.Flush())
	if got := resolve(t, r, l, xid, true, 300); !slices.Equal(got, []string{"product:200"}) {
		t.Errorf("at XA COMMIT: %q", got)
	}
	// And not with one that changes no mapped row.
	must(t, r.Row(of(400, 9)))
	must(t, r.Prepare(&event.Tx{XID: xid, GTID: event.GTID{Server: 2, Number: 10}}, end(450)))
	must(t, r.Flush())
	if got := resolve(t, r, l, xid, true, 500); len(got) != 0 {
		t.Errorf("at XA COMMIT of nothing: %q", got)
	}
}

func TestARestartBetweenPrepareAndCommitLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	r, _ := xaReader(t, s)
	prepare(t, r, xid, 100, 200)
	prepare(t, r, "other", 300)
	must(t, s.Close())
	s = openStore(t, dir)
	defer s.Close()
	r, l := xaReader(t, s)
	if got := resolve(t, r, l, xid, true, 500); !slices.Equal(got, []string{"product:100", "product:200"}) {
		t.Errorf("at XA COMMIT: %q", got)
	}
	if got := resolve(t, r, l, "other", true, 600); !slices.Equal(got, []string{"product:300"}) {
		t.Errorf("at the other's XA COMMIT: %q", got)
	}
}

func TestARolledBackTransactionInvalidatesNothing(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	must(t, s.Checkpoint().Begin(event.Position{
		Flavor: event.MariaDB, Server: "2", Epoch: 1, File: "binlog.000001",
		Pos: 4,
	}))
	r, l := xaReader(t, s)
	prepare(t, r, xid, 100)
	if got := resolve(t, r, l, xid, false, 500); len(got) != 0 {
		t.Errorf("at XA ROLLBACK: %q", got)
	}
	s.Checkpoint().Advance(end(550))
	must(t, s.Checkpoint().Save())
	if left(t, s) != 0 {
		t.Error("still remembered")
	}
	// The same name again, which changes no mapped row this time.
	must(t, r.Prepare(&event.Tx{XID: xid}, end(650)))
	if got := resolve(t, r, l, xid, true, 700); len(got) != 0 {
		t.Errorf("at XA COMMIT of nothing: %q", got)
	}
}

func TestALargePreparedTransactionIsRememberedInPieces(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	r, l := xaReader(t, s)
	const rows = 2*stashChunk + stashChunk/2
	positions := make([]uint64, rows)
	for i := range positions {
		positions[i] = uint64(i + 1)
	}
	for _, pos := range positions {
		must(t, r.Row(row(pos, xid)))
		if len(r.xa.chunk) > stashChunk {
			t.Fatalf("%d keys are held in memory", len(r.xa.chunk))
		}
	}
	must(t, r.Prepare(&event.Tx{XID: xid}, end(rows+50)))
	must(t, r.Flush())
	got := resolve(t, r, l, xid, true, rows+100)
	if len(got) != rows || got[0] != "product:1" || got[rows-1] != "product:25000" {
		t.Errorf("%d keys", len(got))
	}
	for _, b := range l.batches {
		if b.Len() > batchKeys {
			t.Errorf("a batch of %d keys", b.Len())
		}
	}
}

func TestATransactionCommittedInOnePhaseIsNotRemembered(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	must(t, s.Checkpoint().Begin(event.Position{
		Flavor: event.MariaDB, Server: "2", Epoch: 1, File: "binlog.000001",
		Pos: 4,
	}))
	r, l := xaReader(t, s)
	const rows = stashChunk + 1 // one piece is stored, one row waits for the next
	for pos := range uint64(rows) {
		must(t, r.Row(row(pos+10, xid)))
	}
	if left(t, s) != 1 || len(r.xa.chunk) != 1 {
		t.Fatalf("%d stashes, %d keys in memory", left(t, s), len(r.xa.chunk))
	}
	must(t, r.Commit(&event.Tx{XID: xid}, end(rows+50)))
	must(t, r.Flush())
	if got := len(l.keys()); got != rows {
		t.Errorf("%d keys are handed on, want %d", got, rows)
	}
	// The name again, prepared this time: its keys are its own.
	prepare(t, r, xid, rows+100)
	s.Checkpoint().Advance(end(rows + 50))
	must(t, s.Checkpoint().Save())
	if got := resolve(t, r, l, xid, true, rows+300); len(got) != 1 {
		t.Errorf("at XA COMMIT: %d keys", len(got))
	}
	s.Checkpoint().Advance(end(rows + 350))
	must(t, s.Checkpoint().Save())
	if left(t, s) != 0 {
		t.Error("still remembered")
	}
}

// valueRouter makes from a row a document under user:1, one field of a hash and a plain delete; the position is the
// value.
type valueRouter struct{ effect *event.Effect }

func (r valueRouter) Bind(*event.Table) ([]event.Need, error) { return nil, nil }

func (r valueRouter) Publish() {}

func (r valueRouter) Route(b *event.Batch, c *event.Change) {
	v := c.Version
	v.Row = 0
	value := strconv.FormatUint(v.Pos, 10)
	for mapping := range 2 {
		b.AddOrigin(event.Origin{
			Table: c.Table.String(), Tx: *c.Tx, Event: v, D: time.Second, Mapping: mapping,
			RateLimit: 7,
		})
		if mapping == 0 {
			b.AddItem(event.Item{
				Text: event.AppendField(append(b.Text(), "user:1"...), value), Key: 6, Row: c.Version.Row,
				Action: event.ActionRebuild, Intent: event.IntentPut, Effect: r.effect,
			})
			continue
		}
		b.AddItem(event.Item{
			Text: event.AppendField(event.AppendField(append(b.Text(), "users"...), "1"), value), Key: 5, Row: c.Version.Row,
			Action: event.ActionHash, Intent: event.IntentPut,
		})
		b.Add(append(b.Text(), "list"...), c.Version.Row, event.ActionDelete)
	}
}

// described returns what is done to which key under which mapping.
func described(t *testing.T, l *fakeLog) (all []string) {
	t.Helper()
	for _, b := range l.batches {
		for i := range b.Len() {
			inv := &b.Invalidations[i]
			fields, err := b.Fields(i).All()
			must(t, err)
			if o := b.Of(i); o.RateLimit != 7 || o.D != time.Second {
				t.Errorf("%s has the origin %+v", b.Key(i), o)
			}
			all = append(all, fmt.Sprintf("%d %s %s %s %q %s", b.Of(i).Mapping, b.Key(i), inv.Action, inv.Intent, fields,
				b.Version(i)))
			if e := b.EffectOf(i); inv.Action == event.ActionRebuild && (e == nil || e.TTL != time.Hour) {
				t.Errorf("%s has the effect %+v", b.Key(i), e)
			}
		}
	}
	return all
}

// Nobody may see a value before its transaction is committed, and never one that was rolled back.
func TestAValueIsWrittenWhenItsTransactionIsCommitted(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	r, l := xaReader(t, s)
	r.router = valueRouter{&event.Effect{TTL: time.Hour}}
	prepare(t, r, xid, 100, 200)
	want := []string{
		`0 user:1 rebuild forget [] 1/1/100/1`, `1 users hash forget ["1"] 1/1/100/1`, `1 list delete forget [] 1/1/100/1`,
		`0 user:1 rebuild forget [] 1/1/200/1`, `1 users hash forget ["1"] 1/1/200/1`, `1 list delete forget [] 1/1/200/1`,
	}
	if d := cmp.Diff(want, described(t, l)); d != "" {
		t.Errorf("at XA PREPARE: %s", d)
	}
	must(t, s.Close())

	s = openStore(t, dir)
	defer s.Close()
	r, l = xaReader(t, s)
	for range 2 { // the XA COMMIT is read again after a crash: the same versions
		l.batches = nil
		tx := &event.Tx{XID: xid}
		must(t, r.Resolve(true, tx, version(1, 1, 500, 0), end(550)))
		must(t, r.Flush())
		// The later value has the higher version, though all have the commit's place.
		want = []string{
			`0 user:1 rebuild put ["100"] 1/1/500/1`, `1 users hash put ["1" "100"] 1/1/500/2`,
			`1 list delete forget [] 1/1/500/2`,
			`0 user:1 rebuild put ["200"] 1/1/500/3`, `1 users hash put ["1" "200"] 1/1/500/4`,
			`1 list delete forget [] 1/1/500/4`,
		}
		if d := cmp.Diff(want, described(t, l)); d != "" {
			t.Errorf("at XA COMMIT: %s", d)
		}
	}
}

// A row of a transaction that is committed in one phase is seen as soon as it is read: what it forgets is enough.
func TestAValueCommittedInOnePhaseIsForgotten(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	r, l := xaReader(t, s)
	r.router = valueRouter{&event.Effect{TTL: time.Hour}}
	must(t, r.Row(row(100, xid)))
	must(t, r.Commit(&event.Tx{XID: xid}, end(150)))
	must(t, r.Flush())
	want := []string{
		`0 user:1 rebuild forget [] 1/1/100/1`, `1 users hash forget ["1"] 1/1/100/1`,
		`1 list delete forget [] 1/1/100/1`,
	}
	if d := cmp.Diff(want, described(t, l)); d != "" {
		t.Error(d)
	}
}

// listXA keeps what is stashed in memory.
type listXA struct {
	keys []stashedKey
	full bool
}

func (s *listXA) Begin(string, event.Version) xaStash { return s }

func (s *listXA) Append(keys []stashedKey) error {
	if s.full && !stash.AllUnknown(keys) {
		return stash.ErrFull
	}
	s.keys = append(s.keys, keys...)
	return nil
}

func (s *listXA) Recall(_ string, _ event.Version, each func([]stashedKey) error) error {
	return each(s.keys)
}

func (s *listXA) Resolve(string, event.Version, event.End) { s.keys = nil }

// A large prepared transaction is remembered by its keys, not by its values, and little of it is in memory.
func TestTheValuesOfAPreparedTransactionAreBounded(t *testing.T) {
	s := &listXA{}
	x := &xaMemory{store: s}
	effect := &event.Effect{}
	tx := &event.Tx{XID: xid}
	const rows, size = 100, 1 << 20
	var b event.Batch
	for pos := range uint64(rows) {
		b.Reset()
		b.AddOrigin(event.Origin{Table: "shop.user", Event: version(1, 1, pos+1, 0)})
		key := fmt.Sprint("user:", pos)
		text := event.AppendField(append(b.Text(), key...), bytes.Repeat([]byte{'x'}, size))
		b.AddItem(event.Item{
			Text: text, Key: len(key), Row: 1, Action: event.ActionRebuild, Intent: event.IntentPut,
			Effect: effect,
		})
		must(t, x.remember(tx, &b, 0))
		if x.bytes > stashBytes+2*size {
			t.Fatalf("%d bytes are held in memory", x.bytes)
		}
	}
	must(t, x.seal(tx))
	put, forget := 0, 0
	_, err := x.recall(tx, version(1, 1, 500, 0), func(k *stashedKey, row uint32) error {
		switch {
		case k.Key != fmt.Sprint("user:", put+forget) || int(row) != put+forget+1:
			t.Errorf("%s is the row %d", k.Key, row)
		case k.Intent == event.IntentPut && forget == 0:
			put++
		default:
			forget++
		}
		return nil
	})
	must(t, err)
	if put != stashPayload/(size+4) || put+forget != rows {
		t.Errorf("%d values and %d keys without", put, forget)
	}
}

// What does not fit into the stash must not end the reader: it would read the same transaction at every start. Its
// commit leaves stale keys, so it is a doubt about its tables.
func TestAPreparedTransactionThatDoesNotFitIsADoubtAtItsCommit(t *testing.T) {
	dir := t.TempDir()
	open := func() (*reader, *fakeLog, *embedded.Store) {
		s, err := embedded.Open(dir, embedded.Options{MaxStashKeys: stashChunk + 10})
		must(t, err)
		r, l := xaReader(t, s)
		r.xa.alarms = r.troubles.alarms
		r.doubts, err = doubt.New(nil, r.troubles.alarms, nil)
		must(t, err)
		return r, l, s
	}
	r, _, s := open()
	const rows = 3 * stashChunk // the first piece fits
	positions := make([]uint64, rows)
	for i := range positions {
		positions[i] = uint64(i + 1)
	}
	for range 2 { // read again after a crash
		prepare(t, r, "large", positions...)
	}
	prepare(t, r, "rolled back", positions...)
	prepare(t, r, "small", rows+100)
	if n := len(r.doubts.List()); n != 0 {
		t.Errorf("%d doubts before anything is committed", n)
	}
	if !slices.ContainsFunc(r.troubles.alarms.Records(),
		func(a alarm.Record) bool { return a.Kind == alarm.XAKeysUnknown }) {
		t.Errorf("no alarm: %+v", r.troubles.alarms.Records())
	}
	must(t, s.Close())

	r, l, s := open()
	defer s.Close()
	for _, c := range []struct {
		xid    string
		commit bool
		keys   int
		doubts int
	}{{"rolled back", false, 0, 0}, {"small", true, 1, 0}, {"large", true, stashChunk, 1}} {
		if got := len(resolve(t, r, l, c.xid, c.commit, rows+300)); got != c.keys {
			t.Errorf("%s: %d keys, want %d", c.xid, got, c.keys)
		}
		doubts := r.doubts.List()
		if len(doubts) != c.doubts {
			t.Errorf("%s: %+v, want %d", c.xid, doubts, c.doubts)
		}
		for _, d := range doubts {
			if d.Cause != alarm.XAKeysUnknown || !slices.Equal(d.Tables, []string{"shop.product"}) || d.Source != "orders" {
				t.Errorf("%+v", d)
			}
		}
	}
}

// A transaction of rows of very many tables is remembered by the name of none.
func TestUnknownKeysOfVeryManyTablesAreThoseOfEveryTable(t *testing.T) {
	s := &listXA{full: true}
	x := &xaMemory{store: s}
	tx := &event.Tx{XID: xid}
	var b event.Batch
	for i := range 10 * stash.MaxUnknown {
		b.Reset()
		b.AddOrigin(event.Origin{Table: fmt.Sprint("shop.t", i), Event: version(1, 1, 5, 0)})
		b.Add(bytes.Repeat([]byte{'x'}, stashBytes/50), 1, event.ActionDelete)
		must(t, x.remember(tx, &b, 0))
		if len(x.unknown) > stash.MaxUnknown+1 {
			t.Fatalf("%d tables are held in memory", len(x.unknown))
		}
	}
	must(t, x.seal(tx))
	unknown, err := x.recall(tx, version(1, 1, 500, 0), func(*stashedKey, uint32) error { return nil })
	must(t, err)
	if !slices.Equal(unknown, []string{""}) {
		t.Errorf("%q", unknown)
	}
}

// Foreign keys change rows when the XA transaction is prepared, and everybody sees it when it is committed.
func TestWhatAnXATransactionCascadesToIsInDoubtWhenItIsCommitted(t *testing.T) {
	for _, keys := range []bool{false, true} { // whether it changes mapped rows, too
		s := openStore(t, t.TempDir())
		r, l := xaReader(t, s)
		r.doubts = r.troubles.doubts
		tx := &event.Tx{XID: xid}
		if keys {
			must(t, r.Row(row(100, xid)))
		}
		r.cascaded(&canal.Step{Tx: tx, Version: version(1, 1, 200, 0), Cascaded: []doubt.Doubt{
			{Cause: alarm.RowsCascaded, Tables: []string{"shop.item"}, Message: "a sentence", At: version(1, 1, 200, 0)},
		}})
		must(t, r.Prepare(tx, end(250)))
		must(t, r.Flush())
		prepared := r.doubts.List()
		if len(prepared) != 1 || prepared[0].Cause != alarm.RowsCascaded { // if it is committed in one phase, that was all
			t.Errorf("when it is prepared: %+v", prepared)
		}
		must(t, r.doubts.Dismiss(t.Context(), prepared[0].ID, prepared[0].Last))
		l.batches = nil
		must(t, r.Resolve(true, tx, version(1, 1, 500, 0), end(550)))
		must(t, r.Flush())
		if got := l.keys(); keys != slices.Equal(got, []string{"product:100"}) {
			t.Errorf("the rows' keys when it is committed: %q", got)
		}
		if d := r.doubts.List(); len(d) != 1 || d[0].Cause != alarm.XAKeysUnknown ||
			!slices.Equal(d[0].Tables, []string{"shop.item"}) || d[0].At != version(1, 1, 500, 0) {
			t.Errorf("when it is committed: %+v", d)
		}
		must(t, s.Close())
	}
}

// So is what statements in it have changed, which nobody sees before.
func TestWhatIsInDoubtAtXAPrepareIsSoAgainWhenItIsCommitted(t *testing.T) {
	for _, about := range [][]string{{"shop.item", "shop.product"}, {""}} {
		s := openStore(t, t.TempDir())
		r, _ := xaReader(t, s)
		r.doubts = r.troubles.doubts
		tx := &event.Tx{XID: xid}
		must(t, r.end(t.Context(), &canal.Step{
			Kind: canal.Prepared, Tx: tx, Version: version(1, 1, 200, 0), End: end(250), Doubted: about,
		}))
		must(t, r.Flush())
		if d := r.doubts.List(); len(d) != 0 {
			t.Errorf("when it is prepared: %+v", d)
		}
		must(t, r.Resolve(true, tx, version(1, 1, 500, 0), end(550)))
		want := about
		if about[0] == "" {
			want = nil
		}
		if d := r.doubts.List(); len(d) != 1 || d[0].Cause != alarm.XAKeysUnknown || !slices.Equal(d[0].Tables, want) ||
			d[0].At != version(1, 1, 500, 0) {
			t.Errorf("when it is committed: %+v, want %q in doubt", d, want)
		}
		must(t, s.Close())
	}
}
