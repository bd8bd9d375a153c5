// Package spectest makes mappings for the tests of what compiles, checks and explains them.
package spectest

import (
	"time"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// Mapping is a [spec.Mapping] that is put together in one expression. Each of its texts has a line of its own in
// f.yaml, from column 10 on: the table 1, the columns 2, `when` 3, `scope` 4, the keys 5 and on.
type Mapping spec.Mapping

// Keys returns a mapping of shop.product that deletes these keys.
func Keys(keys ...string) Mapping {
	m := Mapping{Pos: spec.At("f.yaml", 1, 3), Table: Text("shop.product", 1)}
	for i, k := range keys {
		m.Keys = append(m.Keys, Text(k, 5+i))
	}
	return m
}

// On returns the mapping for another table.
func (m Mapping) On(table string) Mapping { m.Table = Text(table, 1); return m }

// Of returns the mapping for UPDATEs of more columns.
func (m Mapping) Of(columns ...string) Mapping {
	for _, c := range columns {
		m.Columns = append(m.Columns, Text(c, 2))
	}
	return m
}

// If returns the mapping with a predicate.
func (m Mapping) If(when string) Mapping { m.When = Text(when, 3); return m }

// For returns the mapping for these events.
func (m Mapping) For(e spec.Events) Mapping { m.Events = e; return m }

// Free returns the mapping with what the free text of a column may be.
func (m Mapping) Free(column, holds string) Mapping {
	m.Scope = append(m.Scope[:len(m.Scope):len(m.Scope)], spec.FreeText{Column: Text(column, 4), Holds: Text(holds, 4)})
	return m
}

// D returns the mapping with a second delete.
func (m Mapping) D(d time.Duration) Mapping { m.SecondDelete = d; return m }

// With returns the mapping after f has changed it.
func (m Mapping) With(f func(*Mapping)) Mapping { f(&m); return m }

// Specs returns the mappings as a configuration holds them.
func Specs(ms ...Mapping) []spec.Mapping {
	all := make([]spec.Mapping, len(ms))
	for i, m := range ms {
		all[i] = spec.Mapping(m)
	}
	return all
}

// Text is a text at column 10 of a line of f.yaml.
func Text(value string, line int) spec.Text {
	return spec.Text{Value: value, Pos: spec.At("f.yaml", line, 10)}
}

// FromRow is a rebuild from the row, at line 20, and its columns below it.
func FromRow(as event.Form, columns ...string) *spec.Rebuild {
	r := &spec.Rebuild{Pos: spec.At("f.yaml", 20, 5), FromRow: true, As: as}
	for i, c := range columns {
		r.Columns = append(r.Columns, Text(c, 21+i))
	}
	return r
}

// Everything returns the mapping with every action.
func Everything(m Mapping) Mapping {
	m.Rebuild = FromRow(event.FormJSON)
	m.Rebuild.TTL, m.Rebuild.Jitter, m.Rebuild.ExpireAt = time.Hour, 0.1, time.Minute
	m.Rebuild.Missing = &spec.Missing{Cache: spec.Text{Value: "none"}, TTL: 30 * time.Second}
	m.Rebuild.Columns = []spec.Text{Text("id", 20), Text("name", 21), Text("category_id as category", 22), Text("sku", 23)}
	m.Hash = &spec.Hash{Key: Text("h:{category_id}", 30), Field: Text("{id}", 31), Value: Text("{name}", 32)}
	m.Set = &spec.Set{Key: Text("s:{category_id}", 33), Member: Text("{sku}", 34)}
	m.ZSet = &spec.ZSet{Key: Text("z:{category_id}", 35), Member: Text("{sku}", 36), Score: Text("{id}", 37)}
	m.Expire = &spec.Expire{Keys: []spec.Text{Text("e:{id}", 38)}, In: time.Second}
	m.Incr = Text("g:{category_id}", 39)
	m.Publish = &spec.Publish{Channel: Text("c", 40), Message: Text("{id}:{sku}", 41)}
	m.Stream = &spec.Stream{Key: Text("x:{category_id}", 42)}
	return m
}

// Counter is a mapping of shop.product that has a counter, and no keys.
func Counter(key string) Mapping {
	return Mapping{Table: Text("shop.product", 1), Incr: Text(key, 5)}
}

// Product is the definition of shop.product, with a column of each class.
func Product() *event.Table {
	return &event.Table{Schema: "shop", Name: "product", Columns: []event.Column{
		{Name: "id", Type: "bigint unsigned", Class: event.ClassInt, Unsigned: true},
		{Name: "category_id", Type: "int", Class: event.ClassInt},
		{Name: "name", Type: "varchar(64)", Class: event.ClassText, Collation: "utf8mb4_0900_as_cs"},
		{Name: "price", Type: "decimal(10,2)", Class: event.ClassDecimal},
		{Name: "sku", Type: "varchar(64)", Class: event.ClassText, Collation: "utf8mb4_0900_ai_ci"},
		{Name: "status", Type: "enum('live','dead')", Class: event.ClassEnum},
		{Name: "thumb", Type: "varbinary(16)", Class: event.ClassBinary},
		{Name: "score", Type: "double", Class: event.ClassFloat},
		{Name: "made", Type: "year", Class: event.ClassTemporal},
		{Name: "extra", Type: "json", Class: event.ClassJSON},
		{Name: "bar_code", Type: "decimal(20,0)", Class: event.ClassDecimal},
		{Name: "batch", Type: "int(5) unsigned zerofill", Class: event.ClassInt, Unsigned: true},
	}}
}
