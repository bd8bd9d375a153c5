package canal

import (
	"fmt"
	"slices"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// rangeOf is a stream of one part of the binlog, which the test reads itself.
type rangeOf struct {
	*Canal
	t    *testing.T
	end  event.Position
	rows []string
}

func newRange(t *testing.T, d *database, from, to event.Position) *rangeOf {
	t.Helper()
	rec := startAt(from)
	o := d.options()
	o.Logger, o.Alarms = quietLogger(t), newBoard(t, quietLogger(t))
	c, err := New(o, binding(rec), rec)
	testbed.Must(t, err)
	t.Cleanup(c.Close)
	return &rangeOf{Canal: c, t: t, end: to}
}

// next takes a step, and reports whether there is more in the range.
func (r *rangeOf) next() bool {
	r.t.Helper()
	step, err := r.Next(r.t.Context())
	testbed.Must(r.t, err)
	switch step.Kind {
	case Rows:
		testbed.Must(r.t, step.Each(func(c *event.Change) error {
			r.rows = append(r.rows, string(c.After[0].AppendText(nil)))
			return nil
		}))
	case Committed:
		return step.End.File != r.end.File || step.End.Pos < r.end.Pos
	case Idle:
		r.HandedOver()
	}
	return true
}

// A part of the binlog is read again, step by step, next to the live stream of the same server and to that of another:
// each has its own position, and none waits for another or ends its connection.
func TestSeveralStreamsOfOneProcessReadTheirOwnRanges(t *testing.T) {
	var past []*rangeOf
	var live []*running
	var of []*database
	for i, f := range []*flavor{shared[0], shared[2]} {
		d := newDatabase(t, f.get(t), "create table DB.t (id int primary key)")
		begin := here(t, d.Server)
		for n := range 5 {
			d.exec(fmt.Sprintf("insert into DB.t values (%d)", 10*i+n))
		}
		end := here(t, d.Server)
		d.exec(fmt.Sprintf("insert into DB.t values (%d)", 1000*(i+1)))
		live = append(live, reading(t, startAt(end), d.options()))
		past, of = append(past, newRange(t, d, begin, end)), append(of, d)
	}
	for i, r := range live {
		r.wantRows(of[i], fmt.Sprintf("insert DB.t (%d)", 1000*(i+1)))
	}
	more := []bool{true, true}
	for step := 0; more[0] || more[1]; step++ {
		for i, r := range past {
			more[i] = more[i] && r.next()
		}
		if step == 5 { // in the middle of both
			for i, d := range of {
				d.exec(fmt.Sprintf("insert into DB.t values (%d)", 1000*(i+1)+1))
				live[i].wantRows(d, fmt.Sprintf("insert DB.t (%d)", 1000*(i+1)), fmt.Sprintf("insert DB.t (%d)", 1000*(i+1)+1))
			}
		}
	}
	for i, r := range past {
		r.Close()
		var want []string
		for n := range 5 {
			want = append(want, fmt.Sprint(10*i+n))
		}
		if !slices.Equal(r.rows, want) {
			t.Errorf("range %d: %q, want %q", i, r.rows, want)
		}
	}
	for i, r := range live {
		of[i].exec(fmt.Sprintf("insert into DB.t values (%d)", 1000*(i+1)+2))
		r.await(t, "the last row", func() bool { return len(r.rows) == 3 })
		if n := r.connects(); n != 1 {
			t.Errorf("live stream %d: %d connections, want the one that it began with", i, n)
		}
		testbed.Must(t, r.stop())
	}
}

// What a caller does with a stream that it leaves in the middle of a compressed transaction leaves nothing behind, and
// another stream reads all of it.
func TestAStreamCanBeLeftWithinACompressedTransaction(t *testing.T) {
	d := newDatabase(t, shared[0].get(t), "create table DB.t (id int primary key)")
	begin := here(t, d.Server)
	d.exec("set session binlog_transaction_compression=ON", "begin", "insert into DB.t values (1)",
		"insert into DB.t values (2)",
		"insert into DB.t values (3)", "commit", "set session binlog_transaction_compression=OFF")
	end := here(t, d.Server)
	for taken := 1; taken <= 3; taken++ {
		r := newRange(t, d, begin, end)
		for len(r.rows) < taken {
			if !r.next() {
				t.Fatalf("over after %q", r.rows)
			}
		}
		if r.loop.payload == nil {
			t.Fatal("it is not within a compressed transaction")
		}
		r.Close()
		if r.loop.payload != nil || r.Stats().Connected {
			t.Error("it is still there after it was closed")
		}
	}
	r := newRange(t, d, begin, end)
	for r.next() {
	}
	if !slices.Equal(r.rows, []string{"1", "2", "3"}) {
		t.Errorf("%q", r.rows)
	}
}
