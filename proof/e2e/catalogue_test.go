package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/freshet/freshet/proof/testbed"
)

// actionMappings are those of the other suites, and one for every other action. rowValue and what keysOf says of these
// tables say the same, independently.
const actionMappings = mappings + `
  - table: shop.item
    keys: ["item:{id}"]
    rebuild: {from: row, as: json, ttl: 1h, jitter: 10%, missing: {cache: "gone", ttl: 10m}}
    incr: "items:gen"
    publish: {channel: items, message: "{id}"}
    stream: {key: item-changes, maxlen: none}
  - table: shop.item
    keys: ["item:{id}:hash"]
    rebuild: {from: row, as: hash, columns: [id, "name as title", price, note, version]}
  - table: shop.item
    when: "row.live == 1"
    keys: ["item:{id}:text"]
    rebuild: {from: row, as: string, value: "{name}@{price}#{version}"}
  - table: shop.item
    keys: ["kind:{kind}:stats"]
    rebuild: {query: "SELECT COUNT(*) AS n, MAX(version) AS newest FROM shop.item WHERE kind = :kind", as: hash}
  - table: shop.item
    keys: ["kind:{kind}:list"]
    rebuild: {query: "SELECT id, version, price FROM shop.item WHERE kind = :kind ORDER BY id", as: json, rows: many, ttl: 1h}
  - table: shop.item
    keys: ["kind:{kind}:top"]
    rebuild: {query: "SELECT id, name, version FROM shop.item WHERE kind = :kind ORDER BY version DESC, id LIMIT 1", as: json, missing: {cache: "gone", ttl: 10m}}
  - table: shop.profile
    hash: {key: "user:{user_id}", field: profile}
  - table: shop.profile
    hash: {key: "user:{user_id}", field: name, value: "{name}#{version}"}
  - table: shop.member
    set: {key: "tag:{tag}", member: "{user_id}"}
  - table: shop.score
    zset: {key: "board:{game}", member: "{user_id}", score: "{points}"}
  - table: shop.setting
    expire: {keys: ["setting:{id}"], in: 1s}
`

// expireIn is what the mapping of shop.setting says.
const expireIn = "1s"

// How many there are of each.
const (
	items, kinds    = 300, 12
	users           = 100
	tags, members   = 15, 30
	games           = 10
	settings        = 20
	neighbour       = "visits" // a field of every user's hash that no row owns
	neighbourString = "41"
)

var actionSchema = append(
	schema[:len(schema):len(schema)],
	`CREATE TABLE shop.item (id INT UNSIGNED NOT NULL PRIMARY KEY, kind INT NOT NULL, name VARCHAR(40) NOT NULL,
		price DECIMAL(10,2) NOT NULL, weight DOUBLE NOT NULL, big BIGINT UNSIGNED NOT NULL, code VARBINARY(8) NOT NULL,
		made DATETIME(3) NOT NULL, day DATE NOT NULL, doc JSON NULL, note TEXT NULL, live TINYINT NOT NULL,
		version BIGINT NOT NULL, KEY (kind, version)) CHARACTER SET utf8mb4`,
	"CREATE TABLE shop.profile (user_id INT NOT NULL PRIMARY KEY, city VARCHAR(40) NOT NULL, name VARCHAR(40) NOT NULL, version BIGINT NOT NULL)",
	"CREATE TABLE shop.member (tag INT NOT NULL, user_id INT NOT NULL, PRIMARY KEY (tag, user_id))",
	"CREATE TABLE shop.score (game INT NOT NULL, user_id INT NOT NULL, points BIGINT NOT NULL, PRIMARY KEY (game, user_id))",
	"CREATE TABLE shop.setting (id INT NOT NULL PRIMARY KEY, value VARCHAR(40) NOT NULL)",
)

// value is what a key holds, or should. The kinds differ in what Go type has them: a string; a JSON document as
// decoded; a hash, a set (members without a text) and a sorted set (scores as texts), all as maps.
type value struct {
	kind string // as Redis' TYPE says; json is a string, too
	data any
}

// absent is the value of a key that must not be there.
var absent = value{kind: "none"}

// negative is a negative entry.
var negative = value{kind: "string", data: "gone"}

// querier is a database, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// texts returns the rows of a query, each value as the server prints it, nil for NULL.
func texts(ctx context.Context, db querier, query string) ([]map[string]*string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var all []map[string]*string
	for rows.Next() {
		row, values := map[string]*string{}, make([]any, len(names))
		cells := make([]sql.NullString, len(names))
		for i := range cells {
			values[i] = &cells[i]
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		for i, name := range names {
			row[name] = nil
			if cells[i].Valid {
				row[name] = &cells[i].String
			}
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// printed reads an item with the values as JSON is to have them: what differs from what the server prints by itself.
const printed = `SELECT id, kind, name, price, CONCAT(weight) AS weight, big, TO_BASE64(code) AS code, REPLACE(made, ' ', 'T') AS made, day, doc, note,
	live, version FROM shop.item WHERE id = ?`

// numbers are the columns that are numbers in JSON.
var numbers = map[string]bool{"id": true, "kind": true, "weight": true, "big": true, "live": true, "version": true}

// document makes from a row what its JSON document decodes to. MariaDB's JSON columns are text to everybody.
func document(row map[string]*string, flavor testbed.Flavor) (map[string]any, error) {
	out := map[string]any{}
	for name, text := range row {
		switch {
		case text == nil:
			out[name] = nil
		case numbers[name]:
			out[name] = json.Number(*text)
		case name == "doc" && flavor == testbed.FlavorMySQL:
			v, err := decode(*text)
			if err != nil {
				return nil, err
			}
			out[name] = v
		default:
			out[name] = *text
		}
	}
	return out, nil
}

// decode decodes JSON, numbers as their digits.
func decode(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%q is no JSON: %w", text, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%q is more than a JSON value", text)
	}
	return v, nil
}

// fields makes from a row the fields of a hash.
func fields(row map[string]*string) map[string]string {
	out := map[string]string{}
	for name, text := range row {
		if text != nil {
			out[name] = *text
		}
	}
	return out
}

// rowValue returns what a key is to hold, by what the database has now. known is false for keys that are no business
// of this schema. For a user's hash it holds the fields that the row gives.
func (b *bazaar) rowValue(ctx context.Context, db querier, key string) (v value, known bool, err error) {
	var n int
	read := func(query string) []map[string]*string {
		var rows []map[string]*string
		if err == nil {
			// In one round trip: see rowOf.
			rows, err = texts(ctx, db, strings.Replace(query, "?", strconv.Itoa(n), 1))
		}
		return rows
	}
	one := func(query string) map[string]*string {
		if rows := read(query); len(rows) > 0 {
			return rows[0]
		}
		return nil
	}
	switch {
	case exactly(key, "item:%d", &n):
		v, err = b.itemDocument(one(printed), err)
	case exactly(key, "item:%d:hash", &n):
		v = hashOf(one("SELECT id, name AS title, price, note, version FROM shop.item WHERE id = ?"))
	case exactly(key, "item:%d:text", &n):
		v = textOf(one("SELECT CONCAT(name, '@', price, '#', version) AS text FROM shop.item WHERE id = ? AND live = 1"))
	case exactly(key, "kind:%d:stats", &n):
		v = hashOf(one("SELECT COUNT(*) AS n, MAX(version) AS newest FROM shop.item WHERE kind = ?"))
	case exactly(key, "kind:%d:list", &n):
		v, err = b.listDocument(read("SELECT id, version, price FROM shop.item WHERE kind = ? ORDER BY id"), err)
	case exactly(key, "kind:%d:top", &n):
		v, err = b.itemDocument(one("SELECT id, name, version FROM shop.item WHERE kind = ? ORDER BY version DESC, id "+
			"LIMIT 1"), err)
	case exactly(key, "user:%d", &n):
		v = hashOf(one("SELECT city AS profile, CONCAT(name, '#', version) AS name FROM shop.profile WHERE user_id = ?"))
	case exactly(key, "tag:%d", &n):
		v = gathered("set", read("SELECT user_id AS member, '' AS score FROM shop.member WHERE tag = ?"))
	case exactly(key, "board:%d", &n):
		v = gathered("zset", read("SELECT user_id AS member, points AS score FROM shop.score WHERE game = ?"))
	case exactly(key, "setting:%d", &n):
		v = textOf(one("SELECT value AS text FROM shop.setting WHERE id = ?"))
	default:
		return value{}, false, nil
	}
	return v, true, err
}

// itemDocument is the value of a row as JSON, or the negative entry if there is none.
func (b *bazaar) itemDocument(row map[string]*string, err error) (value, error) {
	if err != nil || row == nil {
		return negative, err
	}
	doc, err := document(row, b.r.source.Flavor)
	return value{"json", any(doc)}, err
}

// listDocument is the value of rows as a JSON list.
func (b *bazaar) listDocument(rows []map[string]*string, err error) (value, error) {
	list := []any{}
	for _, row := range rows {
		doc, wrong := document(row, b.r.source.Flavor)
		err = errors.Join(err, wrong)
		list = append(list, any(doc))
	}
	return value{"json", any(list)}, err
}

func hashOf(row map[string]*string) value {
	if row == nil {
		return absent
	}
	return value{"hash", fields(row)}
}

func textOf(row map[string]*string) value {
	if row == nil {
		return absent
	}
	return value{"string", *row["text"]}
}

// gathered makes a set of rows. A set without members is no set.
func gathered(kind string, rows []map[string]*string) value {
	all := map[string]string{}
	for _, row := range rows {
		all[*row["member"]] = *row["score"]
	}
	if len(all) == 0 {
		return absent
	}
	return value{kind, all}
}

// exactly reports whether a key is of a format with one number, and which.
func exactly(key, format string, n *int) bool {
	return scan(key, format, n) && fmt.Sprintf(format, *n) == key
}
