package canal

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/credential/credentialtest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// hand is a loop that is fed by hand, and the sink of its steps.
type hand struct {
	*loop
	sink sink
	take func(*event.Change) error // the sink's Row
}

// event feeds an event to the loop, and all its steps to the sink.
func (h *hand) event(ev []byte) error {
	h.step.Kind = nothing
	if err := h.loop.event(ev); err != nil {
		return err
	}
	return h.steps()
}

// steps feeds the present step, and those that are left of a compressed transaction, to the sink.
func (h *hand) steps() error {
	for {
		if h.step.Kind != nothing {
			if err := h.give(&h.step, h.sink, h.take); err != nil {
				return err
			}
			if err := h.settle(); err != nil {
				return err
			}
		}
		if h.step.Kind = nothing; h.payload == nil {
			return nil
		}
		if err := h.unfold(); err != nil {
			return err
		}
	}
}

// row hands out a row change that was made by hand.
func (h *hand) row(c *event.Change) error {
	h.out.take = h.take
	return h.loop.row(c)
}

func (h *hand) finish(kind Kind) error {
	if err := h.loop.finish(binlog.Header{}, kind); err != nil {
		return err
	}
	return h.steps()
}

// handOn has the sink hand on everything.
func (h *hand) handOn() error { return h.flush(h.sink) }

// fed returns a loop that is fed by hand, at binlog.000001:4.
func fed(t *testing.T) (*hand, *recorder) {
	t.Helper()
	r := newRecorder()
	c, err := New(Options{Address: "x", User: "u", Alarms: newBoard(t, quietLogger(t))}, binding(r), r)
	if err != nil {
		t.Fatal(err)
	}
	l := c.loop
	l.ctx = t.Context()
	l.flavor, l.epoch, l.server = event.MySQL, 1, "s"
	if err := l.tables.restore(nil); err != nil {
		t.Fatal(err)
	}
	r.c = c
	l.at, l.done = at(4), at(4)
	return &hand{l, r, r.Row}, r
}

// rawEvent is an event without checksum that ends where it should.
func rawEvent(pos uint64, t binlog.Type, flags uint16, body ...byte) []byte {
	b := make([]byte, binlog.HeaderSize, binlog.HeaderSize+len(body))
	b[4] = byte(t)
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[9:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[13:], uint32(pos)+uint32(len(b)))
	binary.LittleEndian.PutUint16(b[17:], flags)
	return b
}

func TestAnUnknownEventEndsTheReading(t *testing.T) {
	l, _ := fed(t)
	err := l.event(rawEvent(4, 99, 0, 1, 2, 3))
	var ee *EventError
	if !errors.As(err, &ee) || !errors.Is(err, retry.ErrHalt) || isDoubtful(err) {
		t.Fatalf("%v, want an EventError that halts at once", err)
	}
	for _, word := range []string{"event type 99", "binlog.000001:4", "freshet position set"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not said in %q", word, err)
		}
	}
	l, _ = fed(t)
	if err := l.event(rawEvent(4, 99, binlog.FlagIgnorable, 1, 2, 3)); err != nil {
		t.Errorf("one that may be ignored: %v", err)
	}
	if l.at.pos != 4+binlog.HeaderSize+3 {
		t.Errorf("it was not passed over: %s", l.at)
	}
}

func TestTheEndOfAServersLifeIsPassedOver(t *testing.T) {
	l, _ := fed(t)
	if err := l.event(rawEvent(4, binlog.TypeStop, 0)); err != nil {
		t.Fatalf("a backlog that goes over a clean shutdown of the server: %v", err)
	}
	if l.at.pos != 4+binlog.HeaderSize {
		t.Errorf("it was not passed over: %s", l.at)
	}
}

func TestAnIncidentIsAGap(t *testing.T) {
	l, _ := fed(t)
	err := l.event(rawEvent(4, binlog.TypeIncident, 0, append([]byte{1, 0, 4}, "lost"...)...))
	var gap *GapError
	if !errors.As(err, &gap) || !strings.Contains(err.Error(), "lost events") {
		t.Fatalf("%v, want a GapError", err)
	}
}

func TestAStreamThatMakesNoSenseIsAskedForAgainAndThenHalts(t *testing.T) {
	l, _ := fed(t)
	e := rawEvent(4, 99, binlog.FlagIgnorable)
	binary.LittleEndian.PutUint32(e[13:], 1000)
	err := l.event(e)
	if !isDoubtful(err) || !errors.Is(err, retry.ErrHalt) {
		t.Fatalf("%v", err)
	}
	if err := l.disconnected(err); err != nil {
		t.Fatalf("halts at once: %v", err)
	}
	r := reconnect{stood: true}
	for i := 1; i < giveUpAfter; i++ {
		if got := r.judge(t.Context(), l.loop, err, false); got != nil {
			t.Fatalf("attempt %d: %v", i, got)
		}
	}
	if got := r.judge(t.Context(), l.loop, err, true); got != nil {
		t.Fatalf("after progress: %v", got)
	}
	for i := 1; i < giveUpAfter-1; i++ {
		if got := r.judge(t.Context(), l.loop, err, false); got != nil {
			t.Fatalf("attempt %d: %v", i, got)
		}
	}
	if got := r.judge(t.Context(), l.loop, err, false); !errors.Is(got, retry.ErrHalt) {
		t.Fatalf("in the end: %v", got)
	}
}

func TestATransactionThatTheServerDidNotFinishIsDropped(t *testing.T) {
	for _, early := range []bool{true, false} {
		testDropped(t, early)
	}
}

// testDropped has the sink hand over what there is of the transaction before it is dropped, or after.
func testDropped(t *testing.T, early bool) {
	l, r := fed(t)
	begin := func(pos uint64) { // an anonymous GTID and BEGIN
		t.Helper()
		l.begin = at(pos)
		l.start()
		l.tx.began = true
	}
	begin(100)
	l.tx.GTID = gtid(uuidA, 5)
	if err := l.row(&event.Change{
		Table: &event.Table{}, Tx: &l.tx.Tx, Op: event.Insert,
		Version: version(120),
	}); err != nil {
		t.Fatal(err)
	}
	if early {
		testbed.Must(t, l.handOn())
	}
	l.abandon()
	testbed.Must(t, l.handOn())
	if len(r.batches) != 1 {
		t.Fatalf("%d batches, want 1", len(r.batches))
	}
	if l.tx.open || len(r.ends) != 0 {
		t.Error("it was taken for finished")
	}
	v := l.vis
	v.begin("s", 1)
	if mustTake(t, v, byGTIDs(run(uuidA, 1, 4))); v.unconfirmed() != 0 {
		t.Errorf("handed over early %v: %d claims wait for it", early, v.unconfirmed())
	}
}

// TestTheKeysOfAnXATransactionWaitForItsCommit: its rows came with XA PREPARE, long confirmed; the keys that are
// handed over again at XA COMMIT wait for that, also in a batch with others.
func TestTheKeysOfAnXATransactionWaitForItsCommit(t *testing.T) {
	l, r := fed(t)
	l.begin = at(100)
	l.start()
	if err := l.row(&event.Change{
		Table: &event.Table{}, Tx: &l.tx.Tx, Op: event.Insert,
		Version: version(120),
	}); err != nil {
		t.Fatal(err)
	}
	l.at = at(200)
	if err := l.finish(Committed); err != nil {
		t.Fatal(err)
	}
	l.begin, l.at = at(300), at(400)
	l.start()
	l.tx.XID = "X'61',X'',1"
	if err := l.finish(XACommitted); err != nil {
		t.Fatal(err)
	}
	if err := l.handOn(); err != nil {
		t.Fatal(err)
	}
	if len(r.batches) != 1 || r.batches[0].last != (event.Version{Epoch: 1, File: 1, Pos: 300, Row: 1}) {
		t.Fatalf("batches %+v", r.batches)
	}
	l.vis.begin("s", 1)
	if mustTake(t, l.vis, byPlace(300)); l.vis.unconfirmed() != 1 {
		t.Error("an answer before the XA COMMIT confirms it")
	}
	if mustTake(t, l.vis, byPlace(400)); l.vis.unconfirmed() != 0 {
		t.Error("an answer after the XA COMMIT does not confirm it")
	}
}

func TestPositionsBeyondFourGiBAreReachedFromTheBeginningOfTheFile(t *testing.T) {
	l, r := fed(t)
	l.done = at(5 << 30)
	q := l.request(&SourceInfo{}, nil)
	if q.file != "binlog.000001" || q.pos != firstEvent || l.from != 5<<30 {
		t.Fatalf("%+v, from %d", q, l.from)
	}
	l.at = at(5<<30 - 40)
	for i := range 2 {
		e := rawEvent(5<<30-40+uint64(40*i), binlog.TypeXID, 0, make([]byte, 21)...)
		if err := l.event(e); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.ends) != 1 || r.ends[0].Pos != 5<<30+40 {
		t.Errorf("%+v, want only the transaction behind 5 GiB", r.ends)
	}
}

func TestReadingOverTLS(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shared[0].get(t), "create table DB.t (id int primary key)")
	o := d.options()
	o.TLS = credentialtest.Fixed(&tls.Config{InsecureSkipVerify: true})
	r := reading(t, startAt(here(t, d.Server)), o)
	d.exec("insert into DB.t values (1)")
	r.wantRows(d, "insert DB.t (1)")
	r.await(t, "the row to be handed on, and a mark over it", func() bool {
		return r.gathered == 0 && r.marked(r.rows[0].version)
	})
	r.await(t, "an encrypted dump in the server's list", func() bool { // it may be about to connect again
		return d.QueryText(t, "select count(*) from performance_schema.threads where name='thread/sql/one_connection' and "+
			"connection_type='SSL/TLS' and processlist_command like 'Binlog Dump%'") != "0"
	})
	o.UntilCaughtUp = true
	if err := reading(t, startAt(here(t, d.Server)), o).wait(); err != nil {
		t.Errorf("caught up: %v", err)
	}
	// The shared MariaDB has none.
	d = newDatabase(t, shared[2].get(t), "create table DB.t (id int primary key)")
	o = d.options()
	o.TLS = credentialtest.Fixed(&tls.Config{InsecureSkipVerify: true})
	if err := reading(t, newRecorder(), o).wait(); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("without TLS: %v", err)
	}
	o.TLSOptional = true
	r = reading(t, startAt(here(t, d.Server)), o)
	d.exec("insert into DB.t values (1)")
	r.wantRows(d, "insert DB.t (1)")
}

func TestAChangeOfTheGTIDModeEndsTheRun(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, s, "create table DB.t (id int primary key)")
	r := reading(t, startAt(here(t, s)), d.options())
	d.exec("insert into DB.t values (1)")
	r.await(t, "the first row", func() bool { return len(r.rows) == 1 })
	d.exec("set global gtid_mode=ON_PERMISSIVE", "set global gtid_mode=OFF_PERMISSIVE", "insert into DB.t values (2)")
	if err := r.wait(); !errors.Is(err, errModeChanged) {
		t.Fatalf("%v", err)
	}
	again := reading(t, startAt(r.pos), d.options())
	again.wantRows(d, "insert DB.t (2)")
	d.exec("set global gtid_mode=ON_PERMISSIVE", "set global gtid_mode=ON", "insert into DB.t values (3)")
	again.wantRows(d, "insert DB.t (2)", "insert DB.t (3)")
	if err := again.stop(); err != nil {
		t.Fatal(err)
	}
	d.exec("insert into DB.t values (4)")
	last := reading(t, startAt(again.pos), d.options())
	last.wantRows(d, "insert DB.t (4)")
}

func TestMetricsFollowTheConventions(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := New(Options{Address: "x", User: "u", Registerer: reg}, binding(newRecorder()),
		newRecorder()); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n < 18 {
		t.Errorf("%d series, %v", n, err)
	}
	if _, err := New(Options{Address: "x", User: "u", Registerer: reg}, binding(newRecorder()),
		newRecorder()); err == nil {
		t.Error("the same metrics were registered twice")
	}
}

func TestOptionsSayAllThatIsWrongAtOnce(t *testing.T) {
	_, err := New(Options{Flavor: "oracle", Heartbeat: -1, Start: "x"}, binding(newRecorder()), newRecorder())
	if err == nil {
		t.Fatal("taken")
	}
	for _, word := range []string{"no address", "no user", "oracle", "negative", "start"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not said in %q", word, err)
		}
	}
}

// What a payload holds in memory is freed with the connection, also if another stands in it, which no server writes.
func TestAPayloadWithinAnotherIsDamagedAndBothAreClosed(t *testing.T) {
	l, _ := fed(t)
	body := append([]byte{2, 3, 0xfc, 0xff, 0, 0}, make([]byte, 50)...) // not compressed
	testbed.Must(t, l.beginPayload(body))
	outer := l.payload
	if err := l.beginPayload(body); !errors.Is(err, binlog.ErrDamaged) || l.payload != outer {
		t.Fatalf("%v, payload %p, want %p", err, l.payload, outer)
	}
	l.hangUp()
	if _, _, err := outer.Next(); l.payload != nil || err != io.EOF {
		t.Errorf("the outer one is still open: %v", err)
	}
}
