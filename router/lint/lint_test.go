package lint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// user is a table whose texts are compared byte by byte, so that nothing but what a test is about is found.
func user() *event.Table {
	text := func(name string) event.Column {
		return event.Column{Name: name, Type: "varchar(64)", Class: event.ClassText, Collation: "utf8mb4_0900_bin"}
	}
	return &event.Table{Schema: "shop", Name: "user", Columns: []event.Column{
		{Name: "id", Type: "bigint", Class: event.ClassInt},
		text("name"), text("mail"), text("table"),
		{Name: "token", Type: "varbinary(16)", Class: event.ClassBinary},
		{Name: "uuid", Type: "uuid", Class: event.ClassUUID},
		{Name: "ip", Type: "inet6", Class: event.ClassInet},
		{Name: "kind", Type: "enum('a','b')", Class: event.ClassEnum},
		{Name: "born", Type: "date", Class: event.ClassTemporal},
		{Name: "ratio", Type: "float", Class: event.ClassFloat},
		{Name: "code", Type: "char(2)", Class: event.ClassText, Collation: "utf8mb4_general_ci"},
		{Name: "note", Type: "varchar(9)", Class: event.ClassText, Collation: "latin1_bin"},
		{Name: "doc", Type: "json", Class: event.ClassJSON},
	}}
}

func onUser(keys ...string) spectest.Mapping { return spectest.Keys(keys...).On("shop.user") }

// found returns what Check says, a line each: the place, and the beginning of the finding.
func found(t *testing.T, specs ...spectest.Mapping) []string {
	t.Helper()
	var out []string
	for _, f := range Check(mustNew(t, specs...), user(), spectest.Product()) {
		if f.Do == "" || f.Table == "" {
			t.Errorf("%s: says not what to do, or where", f)
		}
		out = append(out, f.What)
	}
	return out
}

func TestFreeTextInAKeyIsPointedOut(t *testing.T) {
	const free = " is free text, with which a row can name a key that is not its own"
	for _, c := range []struct {
		keys []string
		want []string
	}{
		// Numbers, dates, labels, UUIDs and addresses cannot say whatever their writer likes.
		{[]string{"user:{id}", "a:{uuid}", "b:{kind}", "c:{born}", "d:{ip}", "e:{name|crc32|mod:8}", "all"}, nil},
		{[]string{"user:{name}"}, []string{"{name}" + free}},
		{[]string{"user:{name|lower|trim|pad:5|default:none}"}, []string{"{name|lower|trim|pad:5|default:none}" + free}},
		{[]string{"{token}:x"}, []string{"{token}" + free}},
		{
			[]string{"user:{name|urlencode}", "m:{mail|hex}", "b:{mail|base64}", "h:{mail|lower|md5}", "s:{mail|sha1|upper}"},
			nil,
		},
		// What it can name is said where the configuration knows.
		{
			[]string{"user:{name}", "user:{id}:session"},
			[]string{"{name}" + free + `: "user:1:session" is also a key of "user:{id}:session" (f.yaml:6:10)`},
		},
		{
			[]string{"user:{name}:x", "user:all:x"},
			[]string{"{name}" + free + `: "user:all:x" is also a key of "user:all:x" (f.yaml:6:10)`},
		},
		{[]string{"user:{name}", "account:{id}"}, []string{"{name}" + free}},
		// Last in the key or not, text can begin as another template does.
		{
			[]string{"u:{id}:{name}", "u:{id}:{id}"},
			[]string{"{name}" + free + `: "u:1:1" is also a key of "u:{id}:{id}" (f.yaml:6:10)`},
		},
		// An encoding does not help where the other key is in its alphabet.
		{
			[]string{"user:{name|urlencode}", "user:{id}"},
			[]string{`two templates can make the same key: "user:1" is also a key of "user:{id}" (f.yaml:6:10)`},
		},
		{
			[]string{"user:{name|hex}", "user:{id}"},
			[]string{`two templates can make the same key: "user:11" is also a key of "user:{id}" (f.yaml:6:10)`},
		},
		{[]string{"user:{name|hex}", "user:all"}, nil},
		{[]string{"user:{name|md5}", "user:{id}"}, nil}, // an md5 is longer than any BIGINT
		{[]string{"user:{name|urlencode}", "user:{id}:session"}, nil},
		{[]string{"user:name:{name|urlencode}", "user:{id}"}, nil},
		// Two templates built alike mean the same keys.
		{[]string{"user:{name|md5}", "user:{mail|md5}"}, nil},
		{[]string{"user:{id}", "user:{id|default:0}"}, nil},
	} {
		if diff := cmp.Diff(c.want, found(t, onUser(c.keys...))); diff != "" {
			t.Errorf("%q: %s", c.keys, diff)
		}
	}
	// The other template may be another table's.
	got := found(t, onUser("p:{name}"), spectest.Keys("p:{id}:{sku|lower|hex}"))
	if len(got) != 1 || !strings.Contains(got[0], `"p:1:" is also a key of "p:{id}:{sku|lower|hex}"`) {
		t.Errorf("got %q", got)
	}
}

func TestTheRemedyIsWrittenOut(t *testing.T) {
	for keys, want := range map[string]string{
		"u:{name|lower}": "write {name|lower|urlencode} (or hex, base64 or a digest), and the same in the application",
		"u:{token}":      "write {token|hex} (or hex, base64 or a digest), and the same in the application",
		"u:{code|hex}": "write {code|trim|lower|hex} and the same in the application, or make its keys of the row that " +
			"was read",
		"u:{table}":    "write {`table`} for the column",
		"u:{id}{born}": "write {id}:{born}",
	} {
		got := Check(mustNew(t, onUser(keys)), user())
		if len(got) != 1 || got[0].Do != want {
			t.Errorf("%s: %v, want %q", keys, got, want)
		}
	}
}

func TestPoorKeysArePointedOut(t *testing.T) {
	const spelled = "keys are not: an application that looks a row up by another spelling caches it under a key that no " +
		"change deletes"
	for _, c := range []struct {
		key  string
		want []string
	}{
		{"r:{ratio}", []string{"ratio is FLOAT, whose text is rounded: two values can make one key, and the application " +
			"may print it otherwise"}},
		{"c:{code|urlencode}", []string{"code is compared without case and trailing spaces (utf8mb4_general_ci), " +
			spelled}},
		{"c:{code|lower|urlencode}", []string{"code is compared without trailing spaces (utf8mb4_general_ci), " + spelled}},
		{"c:{code|trim|upper|md5}", nil},
		{"c:{code|md5|lower|trim}", []string{"code is compared without case and trailing spaces (utf8mb4_general_ci), " +
			spelled}},
		{"c:{note|md5}", []string{"note is compared without trailing spaces (latin1_bin), " + spelled}},
		{"c:{name|md5}", nil},
		{"c:{table}", []string{"{table} is the name of the table, not what its column table holds"}},
		{"c:{table}:{schema}:{`table`|md5}", []string{"{table} is the name of the table, not what its column table holds"}},
		{"c:{id}{born}", []string{"nothing divides {id} from {born}: two rows can make the same key, as 1 and 23 do with " +
			"12 and 3"}},
		{"c:{id}{name|md5}", nil}, // the last 32 characters are the md5
		{"c:{uuid}{id}", nil},
		{"c:{id}:{born}", nil},
	} {
		if diff := cmp.Diff(c.want, found(t, onUser(c.key))); diff != "" {
			t.Errorf("%q: %s", c.key, diff)
		}
	}
}

func TestCollationsAreReadByTheirNames(t *testing.T) {
	for name, want := range map[string][2]bool{
		"utf8mb4_0900_ai_ci": {true, false}, "utf8mb4_0900_as_cs": {false, false}, "utf8mb4_0900_bin": {false, false},
		"utf8mb4_de_pb_0900_ai_ci": {true, false}, "utf8mb4_ja_0900_as_cs_ks": {false, false},
		"utf8mb4_general_ci": {true, true}, "utf8mb4_bin": {false, true}, "latin1_swedish_ci": {true, true},
		"latin1_general_cs":        {false, true},
		"utf8mb3_general_nopad_ci": {true, false}, "utf8mb4_nopad_bin": {false, false},
		"uca1400_ai_ci": {true, true}, "utf8mb4_uca1400_nopad_as_cs": {false, false}, "utf8mb4_uca1400_as_ci": {true, true},
		"utf8_general_mysql500_ci": {true, true}, "utf8mb4_thai_520_w2": {true, true}, "binary": {false, false},
		"": {false, false},
	} {
		if got := [2]bool{caseInsensitive(name), padSpace(name)}; got != want {
			t.Errorf("%s: case-insensitive and padded %v, want %v", name, got, want)
		}
	}
}

func TestAPredicateOverOneImageIsPointedOut(t *testing.T) {
	for _, c := range []struct {
		when   string
		events spec.Events
		want   string
	}{
		{"row.id == 1 || old.id == 1", spec.Events{}, ""},
		{"row.id == 1", spec.Events{}, "when looks at row only, which is nil in a DELETE"},
		{"row.id == 1", spec.Events{Insert: true, Update: true}, "when looks at row only, which is what the row became"},
		{"row.id == 1", spec.Events{Insert: true}, ""},
		{"old.id == 1", spec.Events{}, "when looks at old only, which is nil in an INSERT"},
		{"old.id == 1", spec.Events{Delete: true}, ""},
		{"1 == 1", spec.Events{}, ""},
	} {
		got := found(t, onUser("u").If(c.when).For(c.events))
		if len(got) != min(1, len(c.want)) || len(got) == 1 && !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s for %+v: %q, want %q", c.when, c.events, got, c.want)
		}
	}
}

func TestAComparisonThatFailsForEveryInsertIsPointedOut(t *testing.T) {
	for _, c := range []struct {
		when   string
		events spec.Events
		want   string
	}{
		{
			"row.id > 1 || old.id > 1",
			spec.Events{Insert: true, Update: true},
			"old.id is nil in every INSERT, and nil has no order: > fails then, which counts as true and raises an alarm",
		},
		{
			"5 < row.id || old.id == 1",
			spec.Events{},
			"row.id is nil in every DELETE, and nil has no order: < fails then, which counts as true and raises an alarm",
		},
		{"row.id > old.id", spec.Events{Update: true}, ""},
		{"(row.id ?? 0) > 1 || (old.id ?? 0) > 1", spec.Events{}, ""},
		{"row.id != nil && row.id > 1 || nil != old.id && old.id > 1", spec.Events{}, ""},
		{"row.id == 1 || old.id == 1", spec.Events{}, ""},
	} {
		got := found(t, onUser("u").If(c.when).For(c.events))
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s for %+v: %q, want %q", c.when, c.events, got, c.want)
		}
	}
}

func TestShardsAreToldOnce(t *testing.T) {
	r := mustNew(t, spectest.Keys("o:{name}:{table}").On("shop.order_{00..63}"),
		spectest.Keys("o:{id}").On("shop.order_{00..63}"))
	var tables []*event.Table
	for _, n := range []string{"order_00", "order_01", "order_02"} {
		table := user()
		table.Name = n
		table.Columns = table.Columns[:3]
		tables = append(tables, table)
	}
	got := Check(r, tables...)
	want := "f.yaml:5:12: shop.order_00 and 2 more: {name} is free text, with which a row can name a key that is not " +
		"its own: write {name|urlencode} (or hex, base64 or a digest), and the same in the application"
	if len(got) != 1 || got[0].String() != want {
		t.Errorf("got %v\nwant %s", got, want)
	}
}

func TestWhatBindRefusesIsNotCheckedAgain(t *testing.T) {
	if got := found(t, onUser("u:{nix}", "u:{doc}", "r:{ratio}")); len(got) != 1 ||
		!strings.HasPrefix(got[0], "ratio is FLOAT") {
		t.Errorf("got %q", got)
	}
}
