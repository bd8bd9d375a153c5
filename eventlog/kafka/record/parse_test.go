package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/event"
)

// sample is a record with all fields, in format 1, which is read as well.
const sample = `{"format":1,"source":"main","term":3,"seq":17,"prev":"1/112/4711/2","last":"1/112/5230/2","age_ms":1250,"changes":[` +
	`{"table":"shop.product","version":"1/112/5230","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:77","committed":"2026-03-01T12:00:00.123456Z","second_delete_ms":1000,"mapping":0,` +
	`"rows":[{"row":1,"delete":["product:17","category:3:products"]},{"row":2,"delete":["product:18"],"delete_base64":["/w=="]}]}]}`

const sampleMark = `{"format":1,"source":"main","term":3,"version":"1/112/5230/2","server":"u1","made":"2026-03-01T12:00:00.5Z","read":true,"as_of":"2026-03-01T11:59:59Z","ends":[7,-1,0]}`

func TestTheSample(t *testing.T) {
	b, h, err := Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	u, _ := event.ParseUUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
	place := event.Version{Epoch: 1, File: 112, Pos: 5230}
	o := event.Origin{
		Table: "shop.product", Event: place, D: time.Second,
		Tx: event.Tx{GTID: event.GTID{UUID: u, Number: 77}, Committed: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)},
	}
	at := func(row uint32) event.Version { v := place; v.Row = row; return v }
	want := []invalidation{
		{Key: "product:17", Version: at(1), Origin: o, Action: event.ActionDelete},
		{Key: "category:3:products", Version: at(1), Origin: o, Action: event.ActionDelete},
		{Key: "product:18", Version: at(2), Origin: o, Action: event.ActionDelete},
		{Key: "\xff", Version: at(2), Origin: o, Action: event.ActionDelete},
	}
	if d := cmp.Diff(want, flat(b)); d != "" {
		t.Error(d)
	}
	if want := (Header{
		"main", 3, 17,
		event.Version{Epoch: 1, File: 112, Pos: 4711, Row: 2},
		1250 * time.Millisecond,
	}); h != want || b.Last != at(2) {
		t.Errorf("header %+v, last %s", h, b.Last)
	}
}

// change returns the sample with one place of it changed.
func change(t *testing.T, doc, old, new string) []byte {
	t.Helper()
	if strings.Count(doc, old) == 0 {
		t.Fatalf("there is no %s in the sample", old)
	}
	return []byte(strings.Replace(doc, old, new, 1))
}

func TestWhatIsAcceptedBesideOurOwnWriting(t *testing.T) {
	for _, c := range []struct{ old, new string }{
		{`"source":"main"`, "\t\"source\" :\r\n \"main\" "},
		{`"source"`, `"\u0073ource"`},
		{`"main"`, `"\u006d\u0061in"`},
		{`product:17`, `product\u003a17`},
		{`"format":1,`, `"new":{"a":[1,-2.5E+3,"x\\\"\/\b",null,true,false,{}]},"format":1,`},
		{`"format":1,`, ``},
		{`"table"`, `"note":"","table"`},
		{`"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:77"`, `"gtid":"3E11FA47-71CA-11E1-9E33-C80AA9429562:77"`},
		{`"committed":"2026-03-01T12:00:00.123456Z"`, `"committed":"2026-03-01T13:00:00.123456000+01:00"`},
		{`"row":1,"delete":["product:17","category:3:products"]`, `"delete":["product:17","category:3:products"],"row":1`},
		{`["/w=="]`, `[ "\/w==" ]`},
		{`"format":1`, `"format":3`},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[1,"product:17","category:3:products"]`},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, ` [ 1 ,"product:17", "category\u003a3:products" ] `},
		{
			`{"row":1,"delete":["product:17","category:3:products"]}`,
			`[1,"product:17"],{"row":1,"delete":["category:3:products"]}`,
		},
	} {
		doc := change(t, sample, c.old, c.new)
		if c.new == "" { // to the end
			doc = append(bytes.TrimSuffix(doc, []byte("}")), `,"format":1}`...)
		}
		b, h, err := Parse(doc)
		if err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		want, wantHeader, _ := Parse([]byte(sample))
		if d := cmp.Diff(flat(want), flat(b)); d != "" || h != wantHeader {
			t.Errorf("%s: %+v\n%s", doc, h, d)
		}
	}
}

func TestSurrogatesBecomeTheirCharacter(t *testing.T) {
	b, _, err := Parse(change(t, sample, `product:17`, `\ud83d\uDE00\u00e9`))
	if err != nil || b.Key(0) != "😀é" {
		t.Errorf("%q, %v", b.Key(0), err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct{ old, new, want string }{
		{sample, ``, "an object"},
		{sample, `[]`, "an object"},
		{sample, "\x00", "an object"},
		{sample, `{}`, "format, source, term, seq, prev, last and changes"},
		{sample, sample + `{}`, "the end of the document"},
		{sample, sample[:len(sample)-1], "a comma or the end of the object"},
		{sample, sample[:len(sample)-4], "a comma or the end of the list"},
		{sample, sample[:len(sample)-9], "the end of the string"},
		{`"format":1,`, ``, "format, source"},
		{`"format":1`, `"format":"1"`, "a format's number"},
		{`"format":1`, `"format":1.0`, "a format's number"},
		{`"format":1`, `"format":1,"format":1`, "a field not to come twice"},
		{`"format":1,`, `"format":1,,`, "the name of a field"},
		{`"format":1`, `"format"=1`, "a colon"},
		{`"main"`, `""`, "a source that has a name"},
		{`"main"`, `null`, "the name of a source"},
		{`"main"`, `"ma` + "\n" + `in"`, "control characters to be escaped"},
		{`"main"`, `"ma` + "\xc3" + `in"`, "UTF-8"},
		{`"main"`, `"\x"`, "an escape of JSON"},
		{`"main"`, `"\u12g4"`, `\u and four`},
		{`"main"`, `"\ud800"`, "a pair of surrogates"},
		{`"main"`, `"\ud800\u0041"`, "a pair of surrogates"},
		{`"main"`, `"\udc00\ud800"`, "a pair of surrogates"},
		{`"term":3`, `"term":-3`, "a term"},
		{`"term":3`, `"term":03`, "a term"},
		{`"term":3`, `"term":3e1`, "a term"},
		{`"term":3`, `"term":18446744073709551616`, "a term"},
		{`"seq":17`, `"seq":0`, "a sequence number above 0"},
		{`"1/112/4711/2"`, `"1/112/4711"`, "a version"},
		{`"1/112/4711/2"`, `"1/112/4711/4294967296"`, "a version"},
		{`"1/112/4711/2"`, `"4294967296/112/4711/2"`, "a version"},
		{`"1/112/4711/2"`, `"1/112/4711/2 "`, "a version"},
		{`"last":"1/112/5230/2"`, `"last":"1/112/5230/1"`, "last to be the highest version"},
		{`"last":"1/112/5230/2"`, `"last":"1/112/5230/3"`, "last to be the highest version"},
		{`"age_ms":1250`, `"age_ms":-1`, "milliseconds"},
		{`"age_ms":1250`, `"age_ms":9223372036855`, "milliseconds"},
		{`"age_ms":1250`, `"x":` + deep, "fewer levels"},
		{`"age_ms":1250`, `"x":01`, "a comma"},
		{`"age_ms":1250`, `"x":-`, "a value"},
		{`"age_ms":1250`, `"x":1.`, "a value"},
		{`"age_ms":1250`, `"x":1e`, "a value"},
		{`"age_ms":1250`, `"x":nul`, "a value"},
		{`"table":"shop.product",`, ``, "table, version"},
		{`"second_delete_ms":1000,`, ``, "table, version, second_delete_ms"},
		{`"version":"1/112/5230"`, `"version":"1/112/5230/0"`, "a place in the binlog"},
		{`"version":"1/112/5230"`, `"version":""`, "a place in the binlog"},
		{`:77"`, `:0"`, "a GTID"},
		{`:77"`, `:x"`, "a GTID"},
		{`:77"`, `:Tag:77"`, "a GTID"},
		{`"3e11fa47-71ca-11e1-9e33-c80aa9429562:77"`, `"0-1-0"`, "a GTID"},
		{`"3e11fa47-71ca-11e1-9e33-c80aa9429562:77"`, `"0-1"`, "a GTID"},
		{`"3e11fa47-71ca-11e1-9e33-c80aa9429562:77"`, `""`, "a GTID"},
		{`"2026-03-01T12:00:00.123456Z"`, `"2026-03-01 12:00:00"`, "a time"},
		{`"row":1,`, ``, "row and a key"},
		{`"delete":["product:17","category:3:products"]`, `"delete":[]`, "row and a key"},
		{`"delete":["product:18"],`, `"delete":["product:18"],"delete":["x"],`, "a field not to come twice"},
		{`["product:18"]`, `"product:18"`, "a list of keys"},
		{`["product:18"]`, `[18]`, "a key"},
		{`"/w=="`, `"/w"`, "a key in base64"},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[]`, "a row: its ordinal and a key"},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[1]`, "a row: its ordinal and a key"},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `["product:17"]`, "the ordinal of a row"},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[4294967296,"product:17"]`, "the ordinal of a row"},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[1,{"base64":"/w=="}]`, "a key"},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[1 "product:17"]`, "a comma or the end of the list"},
	} {
		doc := change(t, sample, c.old, c.new)
		_, _, err := Parse(doc)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "want "+c.want) {
			t.Errorf("%s\n%v\nwant %s", doc, err, c.want)
		}
	}
	for _, empty := range []string{
		`{"format":1,"source":"a","term":1,"seq":1,"prev":"0/0/0/0","last":"0/0/0/0","changes":[]}`,
		`{"format":1,"source":"a","term":1,"seq":1,"prev":"0/0/0/0","last":"0/0/0/0","changes":[{"table":"t","version":"0/0/0","second_delete_ms":0,"mapping":0,"rows":[]}]}`,
	} {
		if _, _, err := Parse([]byte(empty)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", empty, err)
		}
	}
}

func TestAMistakeIsNamedWithItsPlaceAndNothingOfTheKey(t *testing.T) {
	doc := change(t, sample, `product:18"`, `secret`+"\x01"+`"`)
	_, _, err := Parse(doc)
	want := fmt.Sprintf("record: malformed at byte %d: want control characters to be escaped", bytes.IndexByte(doc, 1))
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestWhatANewerFreshetWroteIsRefusedAsSuch(t *testing.T) {
	for _, c := range []struct{ old, new string }{
		{`"format":1`, `"format":4`},
		{`"format":1`, `"format":0`},
		{`"format":1`, `"format":18446744073709551615`},
		{sample, `{"changes":{"new":[]},"format":4,"x":}`},
		{sample, `{"changes":[{"rows":[{"row":0.5}]}],"format":4}`},
		{`"delete":["product:18"]`, `"scope":[{"key":"product:18"}]`},
		{`"delete":["product:18"]`, `"delete":["product:18"],"publish":["x"]`},
		{`"delete":["product:18"]`, `"unknown":["product:18"]`},
	} {
		if _, _, err := Parse(change(t, sample, c.old, c.new)); !errors.Is(err, ErrUnknownFormat) ||
			errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
	if _, err := ParseMark(change(t, sampleMark, `"format":1`, `"format":2`)); !errors.Is(err, ErrUnknownFormat) {
		t.Error(err)
	}
	// A name that no JSON text has is no action of a newer freshet.
	if _, _, err := Parse(change(t, sample, `"delete":["product:18"]`, `"\x":[]`)); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

// What a parser keeps from one record to the next must not show in the next.
func TestAParserIsAsGoodAsNew(t *testing.T) {
	var p Parser
	docs := [][]byte{
		[]byte(sample),
		change(t, sample, `:77"`, `:blue:78"`),
		change(t, sample, `:77"`, `:red:79"`),
		change(t, sample, `"3e11fa47-71ca-11e1-9e33-c80aa9429562:77"`, `"0-1-80"`),
		change(t, sample, `"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:77",`, ``),
		change(t, sample, `00.123456Z`, `00Z`),
		change(t, sample, `00.123456Z`, `00.123456789Z`),
		change(t, sample, `00.123456Z`, `00.1+01:00`),
		change(t, sample, `00.123456Z`, `00.1Z`),
		change(t, sample, `00.123456Z`, `00.Z`),
		change(t, sample, `00.123456Z`, `00`),
		change(t, sample, `00.123456Z`, `01.123456Z`),
		change(t, sample, `"committed":"2026-03-01T12:00:00.123456Z",`, ``),
		change(t, sample, `,"age_ms":1250`, ``),
		change(t, sample, `shop.product`, `shop.order`),
		change(t, sample, `"main"`, `"other"`),
		[]byte(`{"format":3}`),
		[]byte(brief),
		[]byte(`{"`),
	}
	for i := range 3 * len(docs) {
		doc := docs[i*7%len(docs)]
		want, wantHeader, wantErr := Parse(doc)
		got, h, err := p.Parse(doc)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || h != wantHeader {
			t.Fatalf("%s: %v, %+v; want %v, %+v", doc, err, h, wantErr, wantHeader)
		}
		if err == nil {
			if d := cmp.Diff(flat(want), flat(got)); d != "" || want.Source != got.Source || want.Age != got.Age {
				t.Fatalf("%s: %s", doc, d)
			}
		}
	}
}

// A batch must not change when the parser goes on, or when the memory of its record is used again.
func TestABatchSharesNothing(t *testing.T) {
	var p Parser
	data := []byte(sample)
	b, _, err := p.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(flat(b), b.Source)
	clear(data)
	if _, _, err := p.Parse(change(t, sample, `product:17`, `XXXXXXXXXXXXXX`)); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(flat(b), b.Source); got != want {
		t.Errorf("%s became %s", want, got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(sampleItem))
	f.Add([]byte(sampleMark))
	f.Add([]byte(`{"format":3}`))
	f.Add([]byte(brief))
	f.Add([]byte(strings.ReplaceAll(sample, ":", " :\n")))
	f.Add([]byte(strings.Replace(sample, "product:17", `\ud83d\ude00\u0000é`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		given := bytes.Clone(data)
		b, h, err := Parse(data)
		if !bytes.Equal(given, data) {
			t.Fatal("Parse wrote to the document")
		}
		if err == nil {
			again(t, b, h)
			spaced(t, data, b)
		} else if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknownFormat) {
			t.Fatal(err)
		}
		m, err := ParseMark(data)
		if err == nil {
			markAgain(t, m)
		} else if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknownFormat) {
			t.Fatal(err)
		}
	})
}

// again makes sure that what was understood is written as what is understood.
func again(t *testing.T, b *event.Batch, h Header) {
	t.Helper()
	if b.Len() == 0 || b.Bytes() > 1<<30 {
		t.Fatalf("%d invalidations in %d bytes", b.Len(), b.Bytes())
	}
	data := encode(new(Encoder), h, b)
	back, backHeader, err := Parse(data)
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	if d := cmp.Diff(flat(b), flat(back)); d != "" || backHeader != h || back.Last != b.Last {
		t.Fatalf("%s: %+v, %s", data, backHeader, d)
	}
}

// brief is a record of three rows events: the second is of the same transaction as the first, the third one is not. In
// format 2 each was a change of its own.
const (
	brief = `{"format":3,"source":"main","term":3,"seq":17,"prev":"1/112/4711/2","last":"1/112/5900/1","changes":[` +
		`{"table":"shop.product","version":"1/112/5230","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:77","committed":"2026-03-01T12:00:00.123456Z","second_delete_ms":1000,"mapping":2,"rate_limit":9,"rows":[[1,"product:17"],5560,[2,"product:18","product:19"]]},` +
		`{"version":"1/112/5900","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:78","committed":"2026-03-01T12:00:01.123456Z","rows":[[1,"product:20"]]}]}`
	more = `]},{"version":"1/112/5560","rows":[`
)

func TestWhatIsAsInTheChangeBeforeIsLeftOut(t *testing.T) {
	b, h, err := Parse([]byte(brief))
	if err != nil {
		t.Fatal(err)
	}
	o := b.Origin(0)
	if o.Table != "shop.product" || o.D != time.Second || o.Mapping != 2 || o.RateLimit != 9 || o.Tx.GTID.Number != 77 ||
		len(b.Origins) != 3 {
		t.Fatalf("%+v", b.Origins)
	}
	second, third := o, o
	second.Event.Pos, third.Event.Pos = 5560, 5900
	third.Tx.GTID.Number, third.Tx.Committed = 78, o.Tx.Committed.Add(time.Second)
	if d := cmp.Diff([]event.Origin{o, second, third}, origins(b)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(brief, string(encode(new(Encoder), h, b))); d != "" {
		t.Error(d)
	}
	former, _, err := Parse([]byte(strings.NewReplacer(`"format":3`, `"format":2`, `,5560,`, more).Replace(brief)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(origins(b), origins(former)); d != "" {
		t.Error(d)
	}
}

// What only the change before has cannot be left out by the next one.
func TestAChangeThatHasLessThanTheOneBeforeIsWrittenWhole(t *testing.T) {
	whole := event.Origin{
		Table: "t",
		Tx:    event.Tx{GTID: event.GTID{Domain: 1, Number: 1}, Committed: time.Unix(1_800_000_000, 0).UTC()}, RateLimit: 1,
		Mapping: 1, D: time.Second,
	}
	for name, less := range map[string]func(*event.Origin){
		"no GTID":       func(o *event.Origin) { o.Tx.GTID = event.GTID{} },
		"no time":       func(o *event.Origin) { o.Tx.Committed = time.Time{} },
		"no rate limit": func(o *event.Origin) { o.RateLimit = 0 },
		"no D":          func(o *event.Origin) { o.D = 0 },
		"mapping 0":     func(o *event.Origin) { o.Mapping = 0 },
	} {
		var b event.Batch
		for i := range 3 {
			o := whole
			if o.Event.Pos = uint64(i); i == 1 {
				less(&o)
			}
			b.AddOrigin(o)
			b.Add(append(b.Text(), byte('a'+i)), 1, event.ActionDelete)
		}
		data := encode(new(Encoder), header, &b)
		out, _, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(origins(&b), origins(out)); d != "" {
			t.Errorf("%s: %s\n%s", name, data, d)
		}
	}
}

func TestChangesAfterOthers(t *testing.T) {
	const head = `{"format":3,"source":"a","term":1,"seq":1,"prev":"0/0/0/0","last":"9/9/9/9","changes":[`
	const first = `{'table':'t','version':'1/1/1','second_delete_ms':1,'mapping':0,'rows':[[1,'a']]},`
	one := func(s string) string { return strings.ReplaceAll(s, "'", `"`) }
	for _, c := range []struct {
		changes string
		want    string // keys with versions and Ds, or an error
	}{
		{
			first + `{'table':'t','version':'9/9/9','second_delete_ms':2,'mapping':0,'rows':[[9,'b']]}`,
			"a 1/1/1/1 1ms, b 9/9/9/9 2ms",
		},
		{first + `{'version':'9/9/9','rows':[[9,'b']]}`, "a 1/1/1/1 1ms, b 9/9/9/9 1ms"},
		{first + `{'version':'9/9/9','rows':[{'row':9,'delete':['b']}]}`, "a 1/1/1/1 1ms, b 9/9/9/9 1ms"},
		{first + `{ 'rows':[[9,'b']], 'version':'\u0039/9/9' }`, "a 1/1/1/1 1ms, b 9/9/9/9 1ms"},
		{first + `{'version':'9/9/9','second_delete_ms':2,'rows':[[9,'b']]}`, "a 1/1/1/1 1ms, b 9/9/9/9 2ms"},
		{first + `{'version':'9/9/9','rows':[[9,'b']],'second_delete_ms':2}`, "a 1/1/1/1 1ms, b 9/9/9/9 2ms"},
		{
			first + `{'version':'2/2/2','second_delete_ms':3,'rows':[[2,'b']]},{'version':'9/9/9','rows':[[9,'c']]}`,
			"a 1/1/1/1 1ms, b 2/2/2/2 3ms, c 9/9/9/9 3ms",
		},
		{first + `{'version':'9/9/9','rows':[[9,'b']],'new':{}}`, "a 1/1/1/1 1ms, b 9/9/9/9 1ms"},
		{
			`{'table':'t','version':'9/9/1','second_delete_ms':1,'mapping':0,'rows':[[1,'a'],5,[7,'b'],9,{'row':9,'delete':['c','d']},[8,'e']]}`,
			"a 9/9/1/1 1ms, b 9/9/5/7 1ms, c 9/9/9/9 1ms, d 9/9/9/9 1ms, e 9/9/9/8 1ms",
		},
		{
			`{'rows':[[1,'a'],5,[7,'b'], 9 ,[9,'c']],'table':'t','version':'9/9/1','second_delete_ms':1,'mapping':0}`,
			"a 9/9/1/1 1ms, b 9/9/5/7 1ms, c 9/9/9/9 1ms",
		},
		{
			first + `{'version':'9/9/9','rows':[[9,'b'],3,[7,'c'],1,[8,'d']]},{'version':'9/9/4','rows':[[7,'e']]}`,
			"a 1/1/1/1 1ms, b 9/9/9/9 1ms, c 9/9/3/7 1ms, d 9/9/1/8 1ms, e 9/9/4/7 1ms",
		},
		{first + `{'version':'9/9/3','rows':[[7,'c'],9,[9,'d']],'new':[]}`, "a 1/1/1/1 1ms, c 9/9/3/7 1ms, d 9/9/9/9 1ms"},
		{
			first + `{'version':'9/9/3','rows':[[7,'c'],9,[9,'d']],'second_delete_ms':2}`,
			"a 1/1/1/1 1ms, c 9/9/3/7 2ms, d 9/9/9/9 2ms",
		},
		{first + `{'version':'9/9/9','rows':[5,[9,'b']]}`, "a row"},
		{first + `{'version':'9/9/9','rows':[[9,'b'],5]}`, "a row"},
		{first + `{'version':'9/9/9','rows':[[9,'b'],5,6,[9,'b']]}`, "a row"},
		{first + `{'version':'9/9/9','rows':[[9,'b'],'5',[9,'b']]}`, "a row, or the position"},
		{first + `{'version':'9/9/9','rows':[[9,'b'],-5,[9,'b']]}`, "a row, or the position"},
		{first + `{'version':'9/9/9','rows':[[9,'b'],5.0,[9,'b']]}`, "a row, or the position"},
		{first + `{'version':'9/9/9','rows':[[9,'b'],18446744073709551616,[9,'b']]}`, "a row, or the position"},
		{first + `{'version':'9/9/9','rows':[[9,'b']],'rows':[[9,'b']]}`, "not to come twice"},
		{first + `{'version':'9/9/9','rows':[[9,'b']],'version':'9/9/9'}`, "not to come twice"},
		{first + `{'version':'9/9/18446744073709551616','rows':[[9,'b']]}`, "a place in the binlog"},
		{first + `{'version':'9/9/9','rows':[]}`, "a row"},
		{first + `{'version':'9/9/9'}`, "table, version"},
		{first + `{'rows':[[9,'b']]}`, "table, version"},
		{first + `{'table':'t','version':'9/9/9','rows':[[9,'b']],'mapping':0}`, "second_delete_ms"},
		{`{'version':'9/9/9','rows':[[9,'b']]}`, "table, version"},
		{`{'version':'9/9/9','second_delete_ms':1,'mapping':0,'rows':[[9,'b']]}`, "table, version"},
	} {
		b, _, err := Parse([]byte(head + one(c.changes) + `]}`))
		got := fmt.Sprint(err)
		if err == nil {
			var all []string
			for i := range b.Len() {
				all = append(all, fmt.Sprint(b.Key(i), " ", b.Version(i), " ", b.Of(i).D))
			}
			got = strings.Join(all, ", ")
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s\n%s\nwant %s", c.changes, got, c.want)
		}
	}
}

// What follows in the usual form is read in one go; in any other it says the same.
func TestTransactionsAfterOthers(t *testing.T) {
	const (
		head = `{"format":3,"source":"a","term":1,"seq":1,"prev":"0/0/0/0","last":"9/9/9/9","changes":[`
		id   = `00000000-0000-0000-0000-0000000000`
		gtid = `'gtid':'` + id + `01:`
		time = `'committed':'2026-03-01T12:00:0`
	)
	const first = `{'table':'t','version':'1/1/1',` + gtid + `7',` + time +
		`0.000001Z','second_delete_ms':1,'mapping':0,'rows':[[1,'a']]},`
	for _, c := range []struct{ change, want string }{
		{gtid + `8',` + time + `0.000002Z','rows':[[9,'b']]`, id + "01:8 12:00:00.000002 b"},
		{gtid + `8','rows':[[9,'b']]`, id + "01:8 12:00:00.000001 b"},
		{time + `0.999999Z','rows':[[9,'b']]`, id + "01:7 12:00:00.999999 b"},
		{time + `1.000002Z',` + gtid + `8','rows':[[9,'b']]`, id + "01:8 12:00:01.000002 b"},
		{gtid + `8',` + time + `1.000002Z','rows':[[9,'b']]`, id + "01:8 12:00:01.000002 b"},
		{gtid + `8',` + time + `0.2Z','rows':[[9,'b']]`, id + "01:8 12:00:00.2 b"},
		{gtid + `8',` + time + `0.000002+01:00','rows':[[9,'b']]`, id + "01:8 11:00:00.000002 b"},
		{`'gtid':'` + id + `02:8','rows':[[9,'b']]`, id + "02:8 12:00:00.000001 b"},
		{`'gtid':'` + id + `01:tag:8','rows':[[9,'b']]`, id + "01:tag:8 12:00:00.000001 b"},
		{`'gtid':'0-1-8','rows':[[9,'b']]`, "0-1-8 12:00:00.000001 b"},
		{gtid + `8',` + time + `0.000002Z','rows':[{'row':9,'incr':[{'key':'b'}]}],'new':1`, id + "01:8 12:00:00.000002 b"},
		{gtid + `8',` + time + `0.000002Z','rows':[[9,'b']],` + gtid + `8'`, "not to come twice"},
		{gtid + `0','rows':[[9,'b']]`, "a GTID"},
		{gtid + `08','rows':[[9,'b']]`, "a GTID"},
		{gtid + `','rows':[[9,'b']]`, "a GTID"},
		{gtid + `8x','rows':[[9,'b']]`, "a GTID"},
		{time + `0.00002xZ','rows':[[9,'b']]`, "a time"},
		{time + `0.000002','rows':[[9,'b']]`, "a time"},
	} {
		b, _, err := Parse([]byte(head + strings.ReplaceAll(first+`{'version':'9/9/9',`+c.change, "'", `"`) + `}]}`))
		got := fmt.Sprint(err)
		if err == nil {
			if b.Len() != 2 || len(b.Origins) != 2 {
				t.Errorf("%s\n%d invalidations of %d origins", c.change, b.Len(), len(b.Origins))
				continue
			}
			o := b.Origin(1)
			got = fmt.Sprint(o.Tx.GTID, o.Tx.Committed.Format(" 15:04:05.999999 "), b.Key(1))
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s\n%s\nwant %s", c.change, got, c.want)
		}
	}
}

// spaced makes sure that white space means nothing, which is also that what is read in one go is read as the rest is.
func spaced(t *testing.T, data []byte, want *event.Batch) {
	t.Helper()
	var wide bytes.Buffer
	if err := json.Indent(&wide, data, "", " "); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	b, _, err := Parse(wide.Bytes())
	if err != nil {
		t.Fatalf("%v in %s", err, &wide)
	}
	if d := cmp.Diff(flat(want), flat(b)); d != "" {
		t.Fatal(d)
	}
}
