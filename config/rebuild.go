package config

import "time"

// Rebuild says that the mapping's keys are written anew, instead of deleted.
type Rebuild struct {
	// Pos is where the action stands, as in all of them.
	Pos Pos
	// FromRow: the value is made of the row as it is after the change. Else Query reads it.
	FromRow bool
	// Query is one SELECT with parameters named as columns (:product_id); empty with FromRow. Its syntax is not
	// checked here.
	Query Text
	// Server is where the query runs: source. Empty with FromRow.
	Server Text
	// Timeout is how long the query may take. Default 5s, from 10ms to 5m; 0 with FromRow.
	Timeout time.Duration
	// As is how the value is kept in Redis. Default json.
	As Form
	// Value is the template of the value; exactly with As FormString and FromRow.
	Value Text
	// Columns are those that the value holds, each maybe `as` another name ("user_name as userName"); empty, the
	// default: all. Only with FromRow and As other than FormString. None of them twice. Their syntax is not checked
	// here.
	Columns []Text
	// Decimals is how a DECIMAL stands in a JSON document. Default DecimalsString.
	Decimals Decimals
	// Rows is how many rows of the query the value holds. Default RowsOne; RowsMany not with FormString.
	Rows Rows
	// ExpireAt, when above 0, is how long after it was written the value counts as expired for readers: it stands in
	// the value as expire_at, in Unix milliseconds. Not with FormString, nor with RowsMany. From 1ms to 10 years.
	ExpireAt time.Duration
	// TTL is how long the value lives; 0, the default (`none`): for ever. From 1ms to 10 years.
	TTL time.Duration
	// Jitter is how much longer or shorter than TTL it may be, as a part of it. From 0, the default, to 1.
	Jitter float64
	// Missing is what is kept where there is no row; nil, the default: the key is deleted. Not with FormHash, nor with
	// RowsMany.
	Missing *Missing
}

// Missing is a negative entry: it says that there is no row.
type Missing struct {
	Pos Pos
	// Cache is the value, as it stands there: no template. At most 64 KiB. Default empty.
	Cache Text
	// TTL is how long it lives. Never 0.
	TTL time.Duration
}

// Form is how a rebuilt value is kept in Redis.
type Form string

// The forms: a string that holds JSON, a hash with a field for each column, a string made by a template or of the
// only column of a query.
const (
	FormJSON   Form = "json"
	FormHash   Form = "hash"
	FormString Form = "string"
)

// Decimals is how a DECIMAL stands in a JSON document.
type Decimals string

// The ways: "9.90" keeps every digit for every reader, 9.90 is a number.
const (
	DecimalsString Decimals = "string"
	DecimalsNumber Decimals = "number"
)

// Rows is how many rows of a query a value holds.
type Rows string

// The numbers of rows: one, or any number: a JSON list of objects, or a hash of two columns, the fields' names and
// their values.
const (
	RowsOne  Rows = "one"
	RowsMany Rows = "many"
)

// The bounds of what an action may be told to wait, and the defaults.
const (
	// decade bounds every time to live.
	decade = 3650 * day
	// queryTimeout is how long a query may take when the mapping does not say.
	queryTimeout = 5 * time.Second
	// maxCache bounds a negative entry, which travels with what is to be done.
	maxCache = 64 << 10
	// onSource is the one server that queries run on.
	onSource = "source"
)

// timeToLive is how long a value lives; whoever lets it be none says so.
func timeToLive() kind[time.Duration] { return durations(time.Millisecond, decade) }

// rebuildTimeout is how long a query may take.
func rebuildTimeout() kind[time.Duration] { return durations(10*time.Millisecond, 5*time.Minute) }

// The enumerations of a rebuild, the default first.
func forms() kind[Form]             { return oneOfThe(FormJSON, FormHash, FormString) }
func decimalsKinds() kind[Decimals] { return oneOfThe(DecimalsString, DecimalsNumber) }
func rowsKinds() kind[Rows]         { return oneOfThe(RowsOne, RowsMany) }

// rebuildKeys are the keys of a rebuild.
func rebuildKeys() []string {
	return []string{
		"from", "query", "server", "timeout", "rows", "as", "value", "columns", "decimals", "expire_at", "ttl", "jitter", "missing",
	}
}

// missingKeys are the keys of a negative entry.
func missingKeys() []string { return []string{"cache", "ttl"} }

// rebuild reads the action that writes keys anew. Without a way to make the value there is none.
func (l *loader) rebuild(m *Mapping, f pair) {
	b, ok := l.body(f, "{from: row}", rebuildKeys())
	if !ok {
		return
	}
	r := &Rebuild{Pos: f.at, As: FormJSON, Decimals: DecimalsString, Rows: RowsOne}
	complete := b.origin(r)
	known := b.set("as", func(p pair) bool { return setting(l, p, forms(), &r.As) })
	b.set("rows", func(p pair) bool { return setting(l, p, rowsKinds(), &r.Rows) })
	b.set("decimals", func(p pair) bool { return setting(l, p, decimalsKinds(), &r.Decimals) })
	b.set("expire_at", func(p pair) bool { return setting(l, p, orWord(timeToLive(), "none"), &r.ExpireAt) })
	b.set("ttl", func(p pair) bool { return setting(l, p, orWord(timeToLive(), "none"), &r.TTL) })
	b.set("jitter", func(p pair) bool { return setting(l, p, percentages(), &r.Jitter) })
	r.Value = b.text("value", "write a template, or remove the key")
	r.Columns = b.texts("columns", "column")
	if p, ok := b.given["missing"]; ok {
		r.Missing = l.missingRow(p)
	}
	if known && complete {
		b.rebuildFits(r)
	}
	b.timesFit(r)
	if complete {
		m.Rebuild = r
	}
}

// origin reads what a rebuilt value is made of, and reports whether it is known.
func (b *body) origin(r *Rebuild) bool {
	from, fromGiven := b.given["from"]
	query, queryGiven := b.given["query"]
	switch {
	case fromGiven && queryGiven:
		b.l.report(query.at, "rebuild has both from and query", "remove one of them: a value is made of the row or read by a query")
		return false
	case !fromGiven && !queryGiven:
		if !b.meant["from"] && !b.meant["query"] {
			b.l.report(b.at, "rebuild has neither from nor query", "write from: row, or query: with a SELECT")
		}
		return false
	case fromGiven:
		text := b.l.phrase(from, "write row")
		if text.Value != "" && text.Value != "row" {
			b.l.at(text.Pos, from.name, &fault{quote(text.Value) + " is unknown", "write row, or query: with a SELECT instead"})
		}
		r.FromRow = text.Value == "row"
		return r.FromRow
	}
	r.Query = b.l.phrase(query, "write a SELECT, or from: row instead")
	r.Server, r.Timeout = Text{Value: onSource}, queryTimeout
	b.set("timeout", func(p pair) bool { return setting(b.l, p, rebuildTimeout(), &r.Timeout) })
	if text := b.text("server", "write source, or remove the key"); text.Value != "" {
		r.Server = text
		if text.Value != onSource {
			b.l.at(text.Pos, "rebuild.server", &fault{quote(text.Value) + " is not supported yet", "write source, or remove the key"})
		}
	}
	return r.Query.Value != ""
}

// missingRow reads the negative entry.
func (l *loader) missingRow(f pair) *Missing {
	b, ok := l.body(f, "{cache: \"\", ttl: 30s}", missingKeys())
	if !ok {
		return nil
	}
	e := &Missing{Pos: f.at}
	if p, ok := b.given["cache"]; ok {
		text, wrong := scalar(p.value)
		if wrong == nil && len(text) > maxCache {
			wrong = &fault{"is too long", "write at most " + formatSize(maxCache)}
		}
		if wrong != nil {
			l.at(l.doc.pos(p.value), p.name, wrong)
		} else {
			e.Cache = l.doc.lines.text(l.doc.file, p.value)
		}
	}
	if b.lacks("ttl", "write one, such as 30s: entries for rows that never come back would fill Redis for ever") {
		return nil
	}
	if !b.set("ttl", func(p pair) bool { return setting(l, p, timeToLive(), &e.TTL) }) {
		return nil
	}
	return e
}

// rebuildFits reports keys that have no effect beside others, or no sense.
func (b *body) rebuildFits(r *Rebuild) {
	as := "with as: " + string(r.As)
	if r.FromRow {
		b.without("with from: row", "remove it, or write query: instead", "server", "timeout", "rows")
	} else {
		b.without("with query", "name the columns in the SELECT", "columns")
		b.without("with query", "let the SELECT make it: as: string takes its only column", "value")
	}
	switch {
	case r.As != FormString && r.FromRow:
		b.without(as, "write as: string, or remove it", "value")
	case r.As == FormString && r.FromRow:
		b.without(as, "name the columns in value", "columns")
		b.lacks("value", `write the template that as: string needs, such as "{name}"`)
	}
	if r.As != FormJSON {
		b.without(as+", which holds text", "remove it, or write as: json", "decimals")
	}
	if r.As == FormString {
		b.without(as+", which has no place for it", "write as: json or as: hash, or remove it", "expire_at")
	}
	if r.As == FormHash {
		b.wrong("missing", "a string in place of a hash would be an error for readers", "remove it: where there is no row, the key is deleted")
	}
	if r.Rows == RowsMany && !r.FromRow {
		if r.As == FormString {
			b.wrong("rows", "a string cannot hold many rows", "write as: json, or rows: one")
		}
		b.without("with rows: many, which has no place for it", "remove it", "expire_at")
		b.without("with rows: many, where no rows are an empty list", "remove it", "missing")
	}
}

// timesFit reports times that contradict one another.
func (b *body) timesFit(r *Rebuild) {
	if r.TTL == 0 && !b.broken["ttl"] && !b.meant["ttl"] {
		b.without("without ttl", "write ttl, or remove it", "jitter")
	}
	if r.TTL > 0 && r.ExpireAt > r.TTL {
		b.wrong("expire_at", shortDuration(r.ExpireAt)+" is more than ttl, which is "+shortDuration(r.TTL), "lower it, or raise ttl")
	}
}
