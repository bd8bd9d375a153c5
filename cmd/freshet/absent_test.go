package main

import (
	"fmt"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// A row image that lacks a column of a key does not name the key. It is one of those that its template can have made.
// The row image names the keys of the other template.
func TestTheKeysThatARowImageCannotNameAreForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	s.keys = []string{"product:{id}", "price:{price}"}
	s.run()
	const rows = 300
	for id := range rows {
		s.write(id)
	}
	s.source.Exec(t, "UPDATE shop.product SET price = 7")
	s.await("nothing is in doubt", func(st *app.Status) bool { return st.State == app.Fresh })
	for _, key := range []string{"price:7", "price:x", "prices:7", "other:1", "product:4711"} {
		s.cache(key)
	}
	minimal := []string{"SET SESSION binlog_row_image = MINIMAL"}
	for id := range rows { // each of which lacks the price that was
		minimal = append(minimal, fmt.Sprintf("UPDATE shop.product SET price = 8 WHERE id = %d", id))
	}
	s.answered(append(minimal, "SET SESSION binlog_row_image = DEFAULT")...)
	if s.cached("price:7") {
		t.Error("price:7 is still cached")
	}
	s.kept("price:x", "prices:7", "other:1", "product:4711")
	if n := len(s.status().EndedDoubts); n > 5 {
		t.Errorf("%d answers for one burst of rows", n)
	}
}
