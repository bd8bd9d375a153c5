package canal

import (
	"fmt"
	"slices"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// From 11.7 on MariaDB makes a binlog file of its own of a transaction that is larger than
// binlog_large_commit_threshold (MDEV-32014): it renames the file in which it kept the events, and fills the room
// before them. The positions that we add up are still the server's, and a reader that begins in or after such a file
// finds its place.
func TestALargeTransactionMayBeAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	const rows = 12_000
	s := testbed.MariaDB(t, "--binlog-row-metadata=FULL", "--loose-binlog-large-commit-threshold=10M")
	d := newDatabase(t, s, "create table DB.t (id int primary key, v varchar(1000))")
	began := here(t, s)
	for _, checksum := range []string{"NONE", "CRC32"} {
		d.exec("set global binlog_checksum="+checksum, "insert into DB.t values (-1, 'before')",
			fmt.Sprintf("insert into DB.t select seq, repeat('x',1000) from DB.seq_1_to_%d", rows),
			"insert into DB.t values (-2, 'after')", "delete from DB.t")
	}
	end := here(t, s)
	own := s.QueryText(t, "select count(*) from information_schema.system_variables where "+
		"variable_name = 'BINLOG_LARGE_COMMIT_THRESHOLD'")
	files := s.QueryText(t, "select substring_index(?, '.', -1) - substring_index(?, '.', -1)", end.File, began.File)
	if (files > "2") != (own == "1") {
		t.Fatalf("%s: the binlog has moved on by %s files", s.Version, files)
	}
	o := d.options()
	o.UntilCaughtUp = true
	r := reading(t, startAt(began), o)
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if n, want := len(r.rows), 2*2*(rows+2); n != want {
		t.Errorf("%d rows, want %d", n, want)
	}
	// The server may add a checkpoint of its binlog after it was asked for the end.
	if p := r.Position(); p.File != end.File || p.Pos < end.Pos || p.GTIDs.String() != end.GTIDs.String() {
		t.Errorf("read to %s, want %s", p.String(), end.String())
	}
	texts := r.texts()
	all := testbed.Seeded(t).Perm(len(r.ends))
	for _, i := range all[:testbed.Cut(min(5, len(all)), len(all))] {
		e, p := r.ends[i], began
		p.GTIDs = began.GTIDs.Clone()
		for _, e := range r.ends[:i+1] {
			p.Advance(e)
		}
		late := reading(t, startAt(p), o)
		if err := late.wait(); err != nil {
			t.Fatalf("from %v: %v", e, err)
		}
		rest := late.texts()
		want := tail(texts, len(texts)-rowsBefore(r.recorder, i+1))
		if !slices.Equal(rest, want) {
			t.Errorf("from %s: %d rows, which are others than those that follow", p.String(), len(rest))
		}
	}
}
