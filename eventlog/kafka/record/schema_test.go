package record

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

const (
	schemaFile = "../../../docs/events.schema.json"
	pageFile   = "../../../docs/events.md"
)

// schema compiles the part of docs/events.schema.json with the given anchor; "": all of it.
func schema(t *testing.T, anchor string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	if anchor != "" {
		anchor = "#" + anchor
	}
	s, err := c.Compile(schemaFile + anchor)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(s *jsonschema.Schema, doc []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func TestWhatIsWrittenFollowsTheSchema(t *testing.T) {
	all, records, marks := schema(t, ""), schema(t, "record"), schema(t, "mark")
	rapid.Check(t, func(t *rapid.T) {
		h := Header{
			Source: "main", Term: rapid.Uint64().Draw(t, "term"), Seq: rapid.Uint64Min(1).Draw(t, "seq"),
			Prev: versions.Draw(t, "prev"),
		}
		h.Age = rapid.SampledFrom([]time.Duration{event.Unknown, 0, 1, 1<<63 - 1}).Draw(t, "age")
		m := Mark{
			Mark: event.Mark{
				Source: "main", Term: h.Term, Version: h.Prev, Made: times.Draw(t, "made"),
				Read: rapid.Bool().Draw(t, "read"),
			},
			AsOf: times.Draw(t, "as of"), Ends: rapid.SliceOf(rapid.Int64Min(-1)).Draw(t, "ends"),
		}
		rec, mark := encode(new(Encoder), h, batches.Draw(t, "batch")), m.Append(nil)
		for doc, s := range map[string]*jsonschema.Schema{string(rec): records, string(mark): marks} {
			if err := valid(s, []byte(doc)); err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			if err := valid(all, []byte(doc)); err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
		}
		if valid(marks, rec) == nil || valid(records, mark) == nil {
			t.Fatal("a record is taken for a mark, or a mark for a record")
		}
	})
}

// The schema refuses what Parse does, where a schema can say it.
func TestTheSchemaRefusesWhatParseDoes(t *testing.T) {
	all := schema(t, "")
	for _, c := range []struct{ old, new string }{
		{`"format":1`, `"format":4`},
		{`"format":1`, `"format":0`},
		{`"format":1,`, ``},
		{`"table":"shop.product",`, ``},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[1]`},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `["product:17"]`},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[1,2]`},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `5400`},
		{`"rows":[`, `"rows":[[1,"a"],-5400,`},
		{`"rows":[`, `"rows":[[1,"a"],54.5,`},
		{`"rows":[`, `"rows":[[1,"a"],"5400",`},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[-1,"product:17"]`},
		{`{"row":1,"delete":["product:17","category:3:products"]}`, `[1,{"base64":"/w=="}]`},
		{`"main"`, `""`},
		{`"seq":17`, `"seq":0`},
		{`"term":3`, `"term":-3`},
		{`"term":3`, `"term":18446744073709551616`},
		{`"1/112/4711/2"`, `"1/112/4711"`},
		{`"1/112/4711/2"`, `"01/112/4711/2"`},
		{`"age_ms":1250`, `"age_ms":-1`},
		{`"age_ms":1250`, `"age_ms":null`},
		{`"second_delete_ms":1000,`, ``},
		{`"version":"1/112/5230"`, `"version":"1/112/5230/0"`},
		{`:77"`, `:0"`},
		{`"2026-03-01T12:00:00.123456Z"`, `"2026-03-01 12:00:00"`},
		{`"row":1,`, ``},
		{`"delete":["product:17","category:3:products"]`, `"delete":[]`},
		{`"delete":["product:18"]`, `"rebuild":["product:18"]`},
		{`"delete":["product:18"]`, `"scope":[{"key":"product:18"}]`},
		{`["product:18"]`, `[18]`},
		{`"/w=="`, `"/w"`},
	} {
		doc := change(t, sample, c.old, c.new)
		if _, _, err := Parse(doc); err == nil {
			t.Errorf("Parse takes %s", doc)
		}
		if valid(all, doc) == nil {
			t.Errorf("the schema takes %s", doc)
		}
	}
	for _, c := range []struct{ old, new string }{
		{`"key":"user:7",`, ``},
		{`"key":"user:7"`, `"key":null`},
		{`"effect":0`, `"effect":-1`},
		{`"json":{"id":7}`, `"json":{"id":7},"string":"x"`},
		{`"json":{"id":7}`, `"member":"7"`},
		{`,"message":"m"`, ``},
		{`"hash":{"id":"7"}`, `"hash":{"id":7}`},
		{`"hash":{"id":"7"}`, `"hash":{"id":{"base64":"/w"}}`},
		{`"hash":{"id":"7"}`, `"hash":{"id":{"hex":"ff"}}`},
		{`"intent":"put"`, `"intent":"guess"`},
		{`"json":{"id":7}`, `"json":{"id":7},"unless":"x"`},
		{`"as":"json"`, `"as":"list"`},
		{`"as":"json"`, `"idle_ms":1`},
		{`"cache":"",`, ``},
		{`"jitter":0.1`, `"jitter":1.1`},
		{`"ttl_ms":3600000`, `"ttl_ms":-1`},
		{`"rate_limit":100`, `"rate_limit":2147483648`},
	} {
		doc := change(t, sampleItem, c.old, c.new)
		if _, _, err := Parse(doc); err == nil {
			t.Errorf("Parse takes %s", doc)
		}
		if valid(all, doc) == nil {
			t.Errorf("the schema takes %s", doc)
		}
	}
	for _, doc := range []string{sample, sampleItem, sampleMark} {
		if err := valid(all, []byte(doc)); err != nil {
			t.Error(err)
		}
	}
}

// Every example on the page is what freshet itself would write, but for its white space.
func TestTheExamplesAreReal(t *testing.T) {
	all := schema(t, "")
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1)
	records, marks := 0, 0
	for _, e := range examples {
		var compact bytes.Buffer
		if err := json.Compact(&compact, e[1]); err != nil {
			t.Fatal(err)
		}
		if err := valid(all, e[1]); err != nil {
			t.Error(err)
		}
		var again []byte
		if b, h, err := Parse(e[1]); err == nil {
			again = encode(new(Encoder), h, b)
			records++
		} else if m, err := ParseMark(e[1]); err == nil {
			again = m.Append(nil)
			marks++
		}
		if d := cmp.Diff(compact.String(), string(again)); d != "" {
			t.Error(d)
		}
	}
	if records == 0 || marks == 0 {
		t.Errorf("%s has %d examples of records and %d of marks", pageFile, records, marks)
	}
}

// Every field is on the page, and nothing else is in the schema.
func TestThePageNamesEveryField(t *testing.T) {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Defs map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	prefix := map[string]string{
		"record": "", "mark": "", "change": "changes[].", "row": "rows[].", "item": "",
		"effect": "",
	}
	n := 0
	for def, d := range s.Defs {
		for field := range d.Properties {
			n++
			if !strings.Contains(string(page), "`"+prefix[def]+field+"`") {
				t.Errorf("%s does not say what %s of a %s is", pageFile, field, def)
			}
		}
	}
	if n < 20 {
		t.Errorf("the schema has %d fields", n)
	}
}
