package config

import (
	"time"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// The bounds of an action's waiting times, and the defaults.
const (
	// decade bounds every time to live.
	decade = 3650 * day
	// queryTimeout is how long a query may take when the mapping does not say.
	queryTimeout = 5 * time.Second
	// maxCache bounds a negative entry, which travels with the action.
	maxCache = 64 << 10
)

// timeToLive is how long a value lives; a caller that allows none says so.
func timeToLive() kind[time.Duration] { return durations(time.Millisecond, decade) }

// rebuildTimeout is how long a query may take.
func rebuildTimeout() kind[time.Duration] { return durations(10*time.Millisecond, 5*time.Minute) }

// forms are the ways of keeping a value, the default first.
func forms() kind[event.Form] {
	words := oneOfThe(event.FormJSON.String(), event.FormHash.String(), event.FormString.String())
	return kind[event.Form]{
		name: words.name,
		parse: func(s string) (event.Form, *fault) {
			_, f := words.parse(s)
			form, _ := event.ParseForm(s) // one that is none has its fault
			return form, f
		},
		format: event.Form.String,
	}
}

// The other enumerations of a rebuild, the default first.
func decimalsKinds() kind[spec.Decimals] { return oneOfThe(spec.DecimalsString, spec.DecimalsNumber) }
func rowsKinds() kind[spec.Rows]         { return oneOfThe(spec.RowsOne, spec.RowsMany) }

// rebuildKeys are the keys of a rebuild.
func rebuildKeys() []string {
	return []string{
		"from", "query", "server", "timeout", "rows", "as", "value", "columns", "decimals", "expire_at", "ttl", "jitter",
		"missing",
	}
}

// missingKeys are the keys of a negative entry.
func missingKeys() []string { return []string{"cache", "ttl"} }

// rebuild reads the action that writes keys again. Without a way to make the value there is none.
func (l *loader) rebuild(m *spec.Mapping, f pair) {
	b, ok := l.body(f, "{from: row}", rebuildKeys())
	if !ok {
		return
	}
	r := &spec.Rebuild{Pos: f.at, As: event.FormJSON, Decimals: spec.DecimalsString, Rows: spec.RowsOne}
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
func (b *body) origin(r *spec.Rebuild) bool {
	from, fromGiven := b.given["from"]
	query, queryGiven := b.given["query"]
	switch {
	case fromGiven && queryGiven:
		b.l.Add(query.at, "rebuild has both from and query",
			"remove one of them: a value is made from the row or read by a query")
		return false
	case !fromGiven && !queryGiven:
		if !b.meant["from"] && !b.meant["query"] {
			b.l.Add(b.at, "rebuild has neither from nor query", "write from: row, or query: with a SELECT")
		}
		return false
	case fromGiven:
		text := b.l.phrase(from, "write row")
		if text.Value != "" && text.Value != "row" {
			b.l.at(text.Pos, from.name, &fault{
				spec.Quote(text.Value) + " is unknown",
				"write row, or query: with a SELECT instead",
			})
		}
		r.FromRow = text.Value == "row"
		return r.FromRow
	}
	r.Query = b.l.phrase(query, "write a SELECT, or from: row instead")
	r.Server, r.Timeout = spec.Text{Value: spec.OnSource}, queryTimeout
	b.set("timeout", func(p pair) bool { return setting(b.l, p, rebuildTimeout(), &r.Timeout) })
	const or = "write source, or host:port of a replica"
	if text := b.text("server", or); text.Value != "" {
		r.Server = text
		if wrong := addressFault(text.Value, 3306, false); wrong != nil && text.Value != spec.OnSource {
			b.l.at(text.Pos, "rebuild.server", &fault{wrong.what, wrong.do + "; or source"})
		}
	}
	return r.Query.Value != ""
}

// missingRow reads the negative entry.
func (l *loader) missingRow(f pair) *spec.Missing {
	b, ok := l.body(f, "{cache: \"\", ttl: 30s}", missingKeys())
	if !ok {
		return nil
	}
	e := &spec.Missing{Pos: f.at}
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
	if b.lacks("ttl", "write one, such as 30s: entries for rows that never come back would fill Redis") {
		return nil
	}
	if !b.set("ttl", func(p pair) bool { return setting(l, p, timeToLive(), &e.TTL) }) {
		return nil
	}
	return e
}

// rebuildFits reports keys that have no effect with the other keys, or no meaning.
func (b *body) rebuildFits(r *spec.Rebuild) {
	as := "with as: " + r.As.String()
	if r.FromRow {
		b.without("with from: row", "remove it, or write query: instead", "server", "timeout", "rows")
	} else {
		b.without("with query", "name the columns in the SELECT", "columns")
		b.without("with query", "let the SELECT make it: as: string takes its only column", "value")
	}
	switch {
	case r.As != event.FormString && r.FromRow:
		b.without(as, "write as: string, or remove it", "value")
	case r.As == event.FormString && r.FromRow:
		b.without(as, "name the columns in value", "columns")
		b.lacks("value", `write the template that as: string needs, such as "{name}"`)
	}
	if r.As != event.FormJSON {
		b.without(as+", which holds text", "remove it, or write as: json", "decimals")
	}
	if r.As == event.FormString {
		b.without(as+", which has no place for it", "write as: json or as: hash, or remove it", "expire_at")
	}
	if r.As == event.FormHash {
		b.wrong("missing", "readers of a hash would find a string", "remove it: where there is no row, the key is deleted")
	}
	if r.Rows == spec.RowsMany && !r.FromRow {
		if r.As == event.FormString {
			b.wrong("rows", "a string cannot hold many rows", "write as: json, or rows: one")
		}
		b.without("with rows: many, which has no place for it", "remove it", "expire_at")
		b.without("with rows: many, where no rows are an empty list", "remove it", "missing")
	}
}

// timesFit reports times that contradict one another.
func (b *body) timesFit(r *spec.Rebuild) {
	if r.TTL == 0 && !b.broken["ttl"] && !b.meant["ttl"] {
		b.without("without ttl", "write ttl, or remove it", "jitter")
	}
	if r.TTL > 0 && r.ExpireAt > r.TTL {
		b.wrong("expire_at", shortDuration(r.ExpireAt)+" is more than ttl, which is "+shortDuration(r.TTL),
			"lower it, or raise ttl")
	}
}
