package oracle

import (
	"slices"
	"testing"
	"time"
)

// Where the server leaves out the columns that it makes, a key that needs one is open, and owed a doubt; all else is as
// sure as ever.
func TestAKeyThatCannotBeNamedIsOwedADoubt(t *testing.T) {
	made := func(leaves bool) (*World, []*change) {
		w, changes := shop()
		w.mappings[0].columns, w.mappings[0].when = nil, nil
		changes[0].of.columns[1].generated = true // name, of which n: is made
		w.remember(changes[0].of)
		if leaves {
			w.LeaveOut()
		}
		return w, changes
	}
	w, changes := made(false)
	if keys := expected(w, changes[6:7]); !keys["p:8"].Must || !keys["n:i0"].Must || w.MayLack("shop.product") ||
		len(w.Owed()) > 0 {
		t.Errorf("a server that logs all: %v", keys)
	}
	w, changes = made(true)
	keys := expected(w, changes[6:7])
	deleted := map[string]time.Time{"p:8": time.Unix(101, 0)}
	if !keys["p:8"].Must || keys["n:i0"].Must || len(Compare(keys, nil, deleted)) > 0 {
		t.Errorf("a server that leaves columns out: %v", keys)
	}
	if !w.MayLack("shop.product") || w.MayLack("shop.x") {
		t.Error("which tables may lack a column")
	}
	if owed := w.Owed(); !slices.Equal(owed, []string{"shop.product"}) {
		t.Errorf("owed a doubt: %q", owed)
	}
	if owed := w.Owed(); len(owed) > 0 {
		t.Errorf("owed twice: %q", owed)
	}
	if expected(w, changes[:1]); len(w.Owed()) > 0 {
		t.Error("an INSERT has all columns")
	}
	// What the predicate reads is not there either, so that a row counts that should not.
	w, changes = made(true)
	w.mappings[0].when = &predicate{
		of: changes[0].of.columns[1:2], eval: func(row, row) (bool, error) { return false, nil },
	}
	if k := expected(w, changes[6:7])["p:8"]; k == nil || k.Must {
		t.Errorf("a predicate that cannot be told: %v", k)
	}
}
