package consumer

import (
	"testing"
)

func TestRecordsAreHandedOutInOrderAndGoOnFromTheCommit(t *testing.T) {
	r := newRig(t, 1)
	r.series(0, 1, 3)
	a := r.work(false)
	first := a.take(3)
	expect(t, first, "s:1:1", "s:1:2", "s:1:3")
	first[1].commit()
	must(t, a.stop())
	b := r.work(true)
	expect(t, b.take(1), "s:1:3")
	r.series(0, 4, 4)
	expect(t, b.take(1), "s:1:4")
}
