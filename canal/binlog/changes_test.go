package binlog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// Inserts, updates and deletes with all row images, compressed and not, of which only some columns are needed.
func TestImagesAreWhatTheServerHad(t *testing.T) {
	for _, flavor := range []event.Flavor{event.MySQL, event.MariaDB} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			s := newSource(t, flavor)
			r := random(t)
			for round := range rounds(1) {
				for _, image := range []string{"full", "minimal", "noblob"} {
					for _, compressed := range []bool{false, true} {
						compress(t, s, compressed)
						s.do(t, "set session binlog_row_image="+image)
						testImages(t, s, r, image, fmt.Sprintf("%s%v%d", image, compressed, round))
					}
				}
			}
		})
	}
}

// compress makes the server compress what it logs, or not.
func compress(t *testing.T, s *source, on bool) {
	if s.flavor == event.MySQL {
		s.do(t, fmt.Sprintf("set session binlog_transaction_compression=%v", on))
		return
	}
	s.do(t, "set global log_bin_compress_min_len=10", fmt.Sprintf("set global log_bin_compress=%v", on))
}

type imageTest struct {
	types         []testType
	image, name   string
	before, after map[string][]*string
	seen          map[string]int
}

func testImages(t *testing.T, s *source, r *rand.Rand, image, name string) {
	it := &imageTest{image: image, name: name, seen: map[string]int{}}
	it.types = chunks(r, testTypes(s.flavor))[0]
	w := &wants{info: map[string][]ColumnInfo{}}
	events := record(t, s.Server, func() {
		s.create(t, name, it.types)
		w.info[name] = s.info(t, name)
		s.do(t, "begin")
		s.fill(t, r, name, it.types, 30)
		s.do(t, "commit")
		it.before = s.texts(t, name, it.types)
		for id := range it.before {
			i := r.IntN(len(it.types))
			ty := it.types[i]
			value := ty.edges[r.IntN(len(ty.edges))]
			if ty.random != nil && r.IntN(3) > 0 {
				value = ty.random(r)
			}
			if r.IntN(10) == 0 {
				value = "null"
			}
			s.do(t, fmt.Sprintf("update d.%s set c%d=%s where id=%s", name, i, value, id))
		}
		it.after = s.texts(t, name, it.types)
		s.do(t, "delete from d."+name)
	})
	for range 3 { // other columns are needed each time
		w.needs = func(d *Definition) []event.Need { return someColumns(r, d) }
		d, err := New(w, Options{VerifyChecksums: true})
		testbed.Must(t, err)
		clear(it.seen)
		testbed.Must(t, decode(t, d, events, func(c *event.Change) error {
			it.check(t, c, d.last.def.Needs)
			return nil
		}))
		n := len(it.before)
		if it.seen["insert"] != n || it.seen["delete"] != n {
			t.Errorf("%s: seen %v of %d rows", name, it.seen, n)
		}
	}
}

// someColumns needs the id, and some others in any order.
func someColumns(r *rand.Rand, d *Definition) []event.Need {
	out := allColumns(d)[:1]
	for _, n := range allColumns(d)[1:] {
		if r.IntN(2) == 0 {
			n.Text = n.Text && r.IntN(4) > 0
			out = append(out, n)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (it *imageTest) check(t *testing.T, c *event.Change, needs []event.Need) {
	t.Helper()
	it.seen[c.Op.String()]++
	key := slices.IndexFunc(needs, func(n event.Need) bool { return n.Column == 0 })
	switch c.Op {
	case event.Insert:
		it.row(t, "insert", string(c.After[key].AppendText(nil)), needs, c.After, it.before)
	case event.Delete:
		it.row(t, "delete", string(c.Before[key].AppendText(nil)), needs, c.Before, it.after)
	default:
		id := string(c.Before[key].AppendText(nil))
		it.row(t, "before update", id, needs, c.Before, it.before)
		it.row(t, "after update", id, needs, c.After, it.after)
		for i, n := range needs {
			if n.Column == 0 {
				continue
			}
			a, b := it.before[id][n.Column-1], it.after[id][n.Column-1]
			differ := (a == nil) != (b == nil) || a != nil && *a != *b
			if differ && c.Before[i].Same(&c.After[i]) {
				t.Errorf("%s: row %s: %s changed unseen", it.name, id, it.types[n.Column-1].sql)
			}
			if it.image == "full" && !differ && !c.Before[i].Same(&c.After[i]) &&
				string(c.Before[i].Raw) == string(c.After[i].Raw) && c.Before[i].Kind == c.After[i].Kind {
				t.Errorf("%s: row %s: %s is not the same as itself", it.name, id, it.types[n.Column-1].sql)
			}
		}
	}
}

// row compares the values of one image.
func (it *imageTest) row(t *testing.T, what, id string, needs []event.Need, values []event.Value,
	want map[string][]*string,
) {
	t.Helper()
	for i, n := range needs {
		if n.Column == 0 {
			continue
		}
		v, w, ty := &values[i], want[id][n.Column-1], it.types[n.Column-1]
		switch v.Kind {
		case event.Absent:
			if it.image == "full" {
				t.Errorf("%s: %s: row %s: %s is absent", it.name, what, id, ty.sql)
			}
		case event.Opaque:
			if n.Text || w == nil {
				t.Errorf("%s: %s: row %s: %s has no text", it.name, what, id, ty.sql)
			}
		case event.Null:
			if w != nil {
				t.Errorf("%s: %s: row %s: %s is NULL, want %s", it.name, what, id, ty.sql, printable(*w))
			}
		default:
			got := "product:" + string(v.AppendText(nil))
			if w == nil || got != *w {
				t.Errorf("%s: %s: row %s: %s is %s, want %v", it.name, what, id, ty.sql, printable(got), w)
			}
		}
	}
}

// A diff of a JSON column is not its value: the column is absent after the update, other columns are not.
func TestPartialJSON(t *testing.T) {
	t.Parallel()
	s := newSource(t, event.MySQL)
	s.do(t, "set session binlog_row_value_options=partial_json")
	for _, image := range []string{"full", "minimal"} {
		w := &wants{info: map[string][]ColumnInfo{}, needs: allColumns}
		name := "json" + image
		events := record(t, s.Server, func() {
			s.do(t, "set session binlog_row_image="+image,
				fmt.Sprintf("create table d.%s (id int primary key, a json, n int, b json, v varchar(20))", name),
				fmt.Sprintf(`insert into d.%s values (1,'{"x": 1, "y": "a long enough value"}',2,'{"x": 1, "y": "another long value"}','v'), (2,'{"x": 1}',3,null,'w')`, name),
				fmt.Sprintf("update d.%s set b=json_set(b,'$.x',5), n=7 where id=1", name),
				fmt.Sprintf("update d.%s set v='z' where id=2", name))
			w.info[name] = s.info(t, name)
		})
		if !slices.ContainsFunc(events, func(ev []byte) bool { return Type(ev[4]) == TypePartialUpdateRows }) {
			t.Fatal("the server logged no PARTIAL_UPDATE_ROWS")
		}
		d, err := New(w, Options{})
		testbed.Must(t, err)
		var got []string
		testbed.Must(t, decode(t, d, events, func(c *event.Change) error {
			if c.Op == event.Update {
				a := c.After
				got = append(got, fmt.Sprintf("%s %d %s %d %s", a[0].AppendText(nil), a[1].Kind, a[2].AppendText(nil), a[3].Kind,
					a[4].AppendText(nil)))
			}
			return nil
		}))
		// In a MINIMAL image the other columns are not even in the before-image.
		want := []string{
			fmt.Sprintf("1 %d 7 %d v", event.JSON, event.Absent), fmt.Sprintf("2 %d 3 %d z", event.JSON, event.Null),
		}
		if image == "minimal" {
			want = []string{
				fmt.Sprintf("1 %d 7 %d ", event.Absent, event.Absent),
				fmt.Sprintf("2 %d  %d z", event.Absent, event.Absent),
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
}
