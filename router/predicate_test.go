package router

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// decide evaluates a predicate for one change of shop.product: whether it let the row through, and what was heard.
func decide(t testing.TB, when string, old, r row) (bool, string) {
	t.Helper()
	var h heard
	router, err := New(spectest.Specs(spectest.Keys("k").If(when)), Options{Reporter: &h})
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	f := newFeed(t, router, spectest.Product())
	f.change(old, r)
	failed := testutil.ToFloat64(router.mappings[0].meters.failed)
	if int(failed) != len(h) {
		t.Errorf("%s: %v failures counted, %d reported", when, failed, len(h))
	}
	return len(f.keys()) == 1, h.String()
}

func TestAPredicateDecidesWhichRowsCount(t *testing.T) {
	live := row{
		"id": uint64(1<<64 - 1), "category_id": -7, "name": "Jar", "price": dec("9.90"), "sku": null{}, "status": "live",
		"score": "1.5", "made": uint64(1999), "thumb": []byte{0xff}, "batch": zerofill("00042"),
		"bar_code": dec("12345678901234567890"),
	}
	for _, c := range []struct {
		when string
		want bool
	}{
		{"row.status == 'live'", true},
		{"row.status == 'Live'", false},
		{`row["status"] == "live"`, true},
		{"row.STATUS == 'live'", true},
		{"row?.status == 'live'", true},
		{"row.status != 'live'", false},
		{"row.status in ['live', 'new']", true},
		{"row.status not in ['live', 'new']", false},
		{"row.status in ['new']", false},
		{"row.name startsWith 'J' and row.name endsWith 'r'", true},
		{"lower(row.name) == 'jar' && len(row.name) == 3", true},
		{"row.name matches '^J.r$'", true},
		{"row.name contains 'x'", false},
		{"row.name < 'Jas' and row.name > 'Jaq'", true},
		{"row.name + '!' == 'Jar!'", true},
		{"row.sku == nil", true},
		{"row.sku != nil", false},
		{"(row.sku ?? 'none') == 'none'", true},
		{"row.sku == 'x' || row.status == 'live'", true},
		{"row.sku in ['x']", false},

		{"row.id > 0", true},
		{"row.id > 9223372036854775807", true},
		{"row.id == 18446744073709551615.0", true},
		{"row.id == 18446744073709551614.0", false},
		{"row.id == -1", false},
		{"row.id - 1 == 18446744073709551614.0", true},
		{"row.id % 10 == 5", true},
		{"row.id in 1..1000000000", false},
		{"row.category_id in -10..-1", true},
		{"row.category_id in 0..5", false},
		{"row.category_id == -7 and -row.category_id == 7 and +row.category_id < 0", true},
		{"row.category_id / 2 == -3.5", true},
		{"row.category_id % 4 == -3", true},
		{"abs(row.category_id) == 7", true},
		{"max(row.category_id, 3) == 3 and min(row.category_id, row.id) == -7", true},
		{"row.category_id * 1000000000000 * 1000000000000 == -7000000000000000000000000.0", true},
		{"-10 < row.category_id < 0", true},
		{"-10 < row.category_id < -8", false},
		{"row.made == 1999", true},
		{"row.batch == 42", true},

		{"row.price == 9.9", true},
		{"row.price == 9.90000000000000000000000001", false},
		{"row.price > 9.89999999999999999999999999", true},
		{"row.price * 3 == 29.7", true},
		{"row.price + 0.1 == 10", true},
		{"row.price in [9.9, 10]", true},
		{"row.price in 9..10", false},
		{"row.price >= -0.5", true},
		{"row.price == 99e-1 and row.price < 1e3", true},
		{"row.price == 0_9.9", true},
		{"string(row.price) == '9.9'", true},
		{"int(row.price) == 9", true},
		{"float(row.price) == 9.9", false}, // a float64 is not quite 9.9
		{"round(float(row.price)) == 10", true},
		{"row.bar_code == 12345678901234567890.0", true},
		{"row.bar_code == 12345678901234567891.0", false},

		{"float(row.score) > 1.4", true},
		{"float(row.score) == 1.5", true},
		{"int('12') == 12", true},
		{"row.thumb == b\"\\xff\"", true},
		{"row.sku startsWith 'a'", false},

		{"row.name in {'Jar': 1}", true},
		{"row.name <= 'Jar' and row.name >= 'Jar'", true},
		{"row.id in [1, 18446744073709551615.0]", true},
		{"old.id in 1..3", false},
		{"int(3.7) == 3 and int(-3.7) == -3 and int(len(row.name)) == 3", true},
		{"int(row.id) == row.id and int('18446744073709551615') == row.id and int('-7') == row.category_id", true},
		{"abs(row.id) == row.id and abs(-1.5) == 1.5", true},
		{"float(row.id) > 1e19", true},
		{"string(row.price / 3) == '3.3' and string(row.price / 7) == '99/70'", true},
		{"date('2024-01-01') + duration('24h') == date('2024-01-02')", true},
		{"duration('2h') > duration('1h') and duration('1h') <= duration('1h')", true},
		{"row.status == 'live' ? row.id > 0 : false", true},
		{"toJSON(row.status) == '\"live\"' and fromJSON('{\"a\": 1}').a == 1", true},

		{"old.status == 'live'", false},
		{"old.status == nil", true},
		{"row.status == 'live' || old.status == 'live'", true},
		{"row.price != old.price", true},
		{"true", true},
		{"false", false},
		{"row.id > 0 ? true : false", true},
		{"let p = row.price; p > 9 && p < 10", true},
		{"any(['live', 'new'], # == row.status)", true},
		{"date('2024-02-01') - date('2024-01-01') == duration('744h')", true},
		{"date('2024-02-01') > date('2024-01-01')", true},
	} {
		got, trouble := decide(t, c.when, nil, live)
		if got != c.want || trouble != "" {
			t.Errorf("%s: %v %s, want %v", c.when, got, trouble, c.want)
		}
	}
}

func TestTheMissingImagesColumnsAreNil(t *testing.T) {
	r := row{"status": "live"}
	for _, c := range []struct {
		when     string
		old, row row
		want     bool
	}{
		{"row.status == 'live'", nil, r, true},
		{"row.status == 'live'", r, nil, false},
		{"old.status == 'live'", r, nil, true},
		{"old.status == 'live'", nil, r, false},
		{"row.status == nil and old.status != nil", r, nil, true},
		{"old.status == 'live' and row.status == 'dead'", r, row{"status": "dead"}, true},
	} {
		if got, trouble := decide(t, c.when, c.old, c.row); got != c.want || trouble != "" {
			t.Errorf("%s of %v to %v: %v %s", c.when, c.old, c.row, got, trouble)
		}
	}
}

func TestAPredicateThatFailsCountsAsTrueAndIsReported(t *testing.T) {
	r := row{"id": uint64(3), "name": "secret", "price": dec("1.5"), "sku": null{}, "status": "live", "score": "1.5"}
	for _, c := range []struct {
		when     string
		old, row row
	}{
		{"old.price < 5", nil, r},                        // nil has no order
		{"int(row.name) == 1", nil, r},                   // no number
		{"float(row.name) == 1", nil, r},                 // no number
		{"row.id / (row.id - 3) == 1", nil, r},           // divides by zero
		{"row.id % (row.id - 3) == 1", nil, r},           // divides by zero
		{"row.price % row.id == 1", nil, r},              // whole numbers only
		{"trim(row.name) == row.id", nil, r},             // text and number
		{"row.name[10] == 1", nil, r},                    // index
		{"row.status == 'dead'", nil, row{}},             // absent
		{"row.status == old.status", row{}, r},           // absent in the old image
		{"row.category_id == 1", nil, r},                 // absent
		{"row.sku ?? row.id", nil, r},                    // neither true nor false
		{"abs(row.sku) == 1", nil, r},                    // nil
		{"max(row.sku, row.id) == 1", nil, r},            // nil
		{"date(row.name) == date('2024-01-01')", nil, r}, // no date
		{
			"reduce(1..200, #acc * 1000000007, 1) > 0 and reduce(1..200, #acc * row.id, 1) > 0", nil,
			row{"id": uint64(1<<64 - 1)},
		},
	} {
		got, trouble := decide(t, c.when, c.old, c.row)
		if !got || trouble == "" {
			t.Errorf("%s: %v, %q", c.when, got, trouble)
		}
		if strings.Contains(trouble, "secret") {
			t.Errorf("%s: a row's value was reported: %s", c.when, trouble)
		}
	}
	_, trouble := decide(t, "old.price < 5", nil, r)
	if want := "3 f.yaml:3:10: the predicate could not be evaluated for a row of shop.product, and counted as true: try " +
		"such a row with freshet explain"; trouble != want {
		t.Errorf("got  %s\nwant %s", trouble, want)
	}
}

func TestAPredicateStopsWhereItIsDecided(t *testing.T) {
	// The absent column is never looked at.
	if got, trouble := decide(t, "row.status == 'live' || row.name == 'x'", nil, row{"status": "live"}); !got ||
		trouble != "" {
		t.Errorf("%v %s", got, trouble)
	}
}

func TestAPredicateAtFaultIsToldWhereAndWhatToWrite(t *testing.T) {
	for _, c := range []struct {
		when     string
		column   int // in the text, from 0
		what, do string
	}{
		{"row.status == ", 13, "unexpected token EOF", ""},
		{"row.status = 'live'", 11, "", ""},
		{"row.status == 'live", 19, "literal not terminated", ""},
		{"rwo.status == 'live'", 0, `unknown name "rwo"`, `did you mean "row"?`},
		{"status == 'live'", 0, `unknown name "status"`, "row.status or old.status"},
		{"row == nil", 0, "row stands alone", "row.column"},
		{"len(old) > 0", 4, "old stands alone", "old.column"},
		{"row[old.name] == 1", 3, "the column is not named", "row.column"},
		{"let r = row; r.x == 1", 8, "row stands alone", ""},
		{"$env.row.x == 1", 0, "$env is not available", ""},
		{"row.meta.x == 1", 9, "a column has no fields", ""},
		{"row.meta() == 1", 4, "a column is no function", ""},
		{"row.active", 4, "row.active is not true or false", "row.active != 0"},
		{"let x = 1; x == 1 ? row.active : true", 24, "row.active is not true or false", ""},
		{"row.active && true", 4, "row.active is not true or false", "row.active != 0"},
		{"!row.active", 5, "row.active is not true or false", "row.active != 0"},
		{"row.active == true", 4, "a BOOL column is a number", "row.active == 1"},
		{"row.active ? true : false", 4, "row.active is not true or false", ""},
		{"'a' + 1 == 2", 4, "mismatched types string and int", ""},
		{"1 + 2", 0, "it is int, not true or false", ""},
		{"row.price ** 2 > 4", 10, "powers are not available", "multiply"},
		{"now() > date('2024-01-01')", 0, "now() is not available", "remove"},
		{"lowr(row.name) == 'a'", 0, `unknown function "lowr"`, `did you mean "lower"?`},
		{"row.name matches '['", 9, "missing closing ]", ""},
		{"row.\nx ==", 8, "", ""},
		{"ключ == 1 && row", 17, "row stands alone", ""},
		{strings.Repeat("1", maxWhen+1), maxWhen, "longer than", ""},
	} {
		_, err := New(spectest.Specs(spectest.Keys("k").If(c.when)), Options{})
		ps, ok := err.(spec.Problems)
		if !ok {
			t.Errorf("%.40q: %v, want problems", c.when, err)
			continue
		}
		p := ps[len(ps)-1]
		if want := 10 + len([]rune(c.when[:c.column])); p.Pos.Column != want {
			t.Errorf("%.40q: at column %d, want %d: %v", c.when, p.Pos.Column, want, ps)
		}
		if !strings.Contains(p.What, c.what) || !strings.Contains(p.Do, c.do) || p.Do == "" {
			t.Errorf("%.40q: %v, want %q, %q", c.when, ps, c.what, c.do)
		}
	}
}

func TestAPredicateMustFitTheTypesOfItsColumns(t *testing.T) {
	for _, c := range []struct {
		when     string
		column   int
		what, do string
	}{
		{"row.nmae == 'x'", 4, `has no column "nmae"`, `did you mean "name"?`},
		{"old.extra == 'x'", 4, "JSON, which a predicate cannot read", "another column"},
		{"row.status == 1", 4, "ENUM('LIVE','DEAD'), a text", "int(row.status)"},
		{"1 != row.name", 9, "a text in a predicate", "int(row.name)"},
		{"row.name in [1, 2]", 4, "and in needs a number", ""},
		{"row.name in 1..2", 4, "and in needs a number", ""},
		{"row.score > 1.5", 4, "DOUBLE, a text", "float(row.score)"},
		{"row.id == '17'", 4, "BIGINT UNSIGNED, a number", "without quotes"},
		{"row.id == -1 and row.price in ['9.90']", 21, "DECIMAL(10,2), a number", "string(row.price)"},
		{"row.id startsWith '1'", 4, "and startsWith needs a text", ""},
		{"row.name * 2 > 1", 4, "and * needs a number", ""},
		{"-row.name > 1", 5, "and - needs a number", ""},
		{"row.id == old.name", 4, "a text and a number", "convert"},
		{"row.id + row.name == '1x'", 4, "a text and a number", "convert"},
		{"round(row.price) == 9", 10, "round() does not take DECIMAL", "round(float(row.price))"},
	} {
		_, err := mustNew(t, spectest.Keys("k").If(c.when)).Bind(spectest.Product())
		ps, ok := err.(spec.Problems)
		if !ok || len(ps) != 1 {
			t.Errorf("%s: %v, want one problem", c.when, err)
			continue
		}
		if p := ps[0]; p.Pos.Column != 10+c.column || !strings.Contains(p.What, c.what) || !strings.Contains(p.Do, c.do) ||
			p.Do == "" {
			t.Errorf("%s: %v, want %q, %q at %d", c.when, p, c.what, c.do, 10+c.column)
		}
	}
	for _, when := range []string{
		"row.id == 17 and row.made > 2000 and row.price < 5 and row.batch == 3",
		"row.name == '5' and row.score == '1.5' and row.thumb != 'x'",
		"row.name == old.status", "row.id == old.price", "row.name == nil and row.id == nil",
	} {
		if _, err := mustNew(t, spectest.Keys("k").If(when)).Bind(spectest.Product()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// What a predicate computes with whole and decimal numbers is what fractions say.
func TestPredicatesComputeExactly(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return rapid.Int64().Draw(t, "int64")
		case 1:
			return rapid.Uint64().Draw(t, "uint64")
		case 2:
			return rapid.IntRange(-3, 3).Draw(t, "int")
		}
		d, ok := parseDecimal(rapid.StringMatching(`-?[0-9]{1,30}(\.[0-9]{1,20})?`).Draw(t, "decimal"))
		if !ok {
			t.Fatal("not read")
		}
		return d
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, _ := rational(a)
		y, _ := rational(b)
		if o, err := order(a, b); err != nil || o != x.Cmp(y) {
			t.Fatalf("%v to %v: %d, %v", a, b, o, err)
		}
		if same, err := equal(a, b); err != nil || same != (x.Cmp(y) == 0) {
			t.Fatalf("%v and %v: %v, %v", a, b, same, err)
		}
		for op, want := range map[byte]*big.Rat{
			'+': new(big.Rat).Add(x, y), '-': new(big.Rat).Sub(x, y), '*': new(big.Rat).Mul(x, y),
		} {
			got, err := arithmetic(op, a, b)
			r, ok := rational(got)
			if err != nil || !ok || r.Cmp(want) != 0 {
				t.Fatalf("%v %c %v = %v, %v, want %v", a, op, b, got, err, want)
			}
		}
		if y.Sign() != 0 {
			got, err := arithmetic('/', a, b)
			if r, ok := rational(got); err != nil || !ok || r.Mul(r, y).Cmp(x) != 0 {
				t.Fatalf("%v / %v = %v, %v", a, b, got, err)
			}
		}
	})
}

func FuzzPredicate(f *testing.F) {
	for _, s := range []string{
		"row.status == 'live' || old.status == 'live'", "row.price > 9.99 and row.id in 1..5", "any([1,2], # == row.id)",
		"let x = row.id; x % 2 == 0", "-row.id < 3 < row.price", "row?.name ?? 'a' matches '^a'", "1e400 > row.price",
		"row.id ? 1 : 2",
		"not (row.name in ['a']) xor", "{'a': row.id}.a == 1", "max(row.id, 1.5) - abs(-2) / 0 == 1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, faults := parsePredicate(spec.Text{Value: text})
		for _, fault := range faults {
			if fault.at < 0 || fault.at > len(text) || fault.what == "" || fault.do == "" {
				t.Fatalf("%q: %+v", text, fault)
			}
		}
		// A program may loop for long; only short ones are run.
		if len(faults) > 0 || strings.Contains(text, "..") || len(text) > 200 {
			return
		}
		table := &event.Table{Schema: "s", Name: "t"}
		for i, c := range p.columns {
			if table.Column(c.Name) < 0 {
				table.Columns = append(table.Columns, event.Column{Name: c.Name, Class: event.Class(i % 4)})
			}
		}
		r := mustNew(t, spectest.Mapping{
			Table: spec.Text{Value: "s.t"}, When: spec.Text{Value: text},
			Keys: []spec.Text{{Value: "k"}},
		})
		needs, _ := r.Bind(table)
		image := make([]event.Value, len(needs))
		for i := range image {
			image[i] = value([]any{1, dec("1.5"), "text", null{}}[i%4])
		}
		var b event.Batch
		r.Route(&b, &event.Change{Table: table, Tx: &event.Tx{}, Op: event.Update, Before: image, After: image})
		if failed := testutil.ToFloat64(r.mappings[0].meters.failed); failed > 0 && b.Len() != 1 {
			t.Fatalf("%q failed and did not count as true", text)
		}
	})
}

func TestALiteralIsReadExactly(t *testing.T) {
	for text, want := range map[string]string{
		"0.1": "0.1", "1_000.25": "1000.25", "123456789012345678901234567890.5": "123456789012345678901234567890.5",
		"1e3": "1000", "25e-2": "0.25", "1.": "1",
	} {
		p, faults := parsePredicate(spec.Text{Value: fmt.Sprintf("string(%s + 0) == '%s'", text, want)})
		if len(faults) > 0 {
			if text == "1." {
				continue // expr does not read it
			}
			t.Errorf("%s: %+v", text, faults)
			continue
		}
		yes, err := p.eval(&mustNew(t, spectest.Keys("k")).machine, &event.Change{Op: event.Insert}, nil)
		if !yes || err != nil {
			t.Errorf("%s is not %s: %v", text, want, err)
		}
	}
}
