package charset

import (
	_ "embed" // for the collations
	"strconv"
	"strings"
	"sync"
)

// Collation is one row of information_schema.COLLATIONS.
type Collation struct {
	ID      uint32
	Name    string
	Charset string
}

// QueryCollations asks any server for id, name and character set of its collations. QueryCollationsMariaDB asks MariaDB
// from 10.10.1 on, where the first no longer gives all; their answer is added to that of the first.
const (
	QueryCollations = "select id, collation_name, character_set_name from information_schema.collations" +
		" where id is not null and character_set_name is not null"
	QueryCollationsMariaDB = "select id, full_collation_name, character_set_name" +
		" from information_schema.collation_character_set_applicability"
)

// Collations finds collations by id and name. Nil knows those of MySQL 9.7 and MariaDB 10.11. It is only read.
type Collations struct {
	ids   map[uint32]Collation
	names map[string]Collation
}

// NewCollations returns the well-known collations with list, as the server has them, over them.
func NewCollations(list []Collation) *Collations {
	c := &Collations{ids: map[uint32]Collation{}, names: map[string]Collation{}}
	for _, l := range list {
		l.Charset = strings.ToLower(l.Charset)
		c.ids[l.ID] = l
		c.names[canonical(l.Name)] = l
	}
	return c
}

// ByID returns the collation with the given id.
func (c *Collations) ByID(id uint32) (Collation, bool) {
	if c != nil {
		if found, ok := c.ids[id]; ok {
			return found, true
		}
	}
	found, ok := wellKnown().ids[id]
	return found, ok
}

// ByName returns the collation with the given name. utf8_… is utf8mb3_….
func (c *Collations) ByName(name string) (Collation, bool) {
	name = canonical(name)
	if c != nil {
		if found, ok := c.names[name]; ok {
			return found, true
		}
	}
	found, ok := wellKnown().names[name]
	return found, ok
}

func canonical(name string) string {
	name = strings.ToLower(name)
	if rest, ok := strings.CutPrefix(name, "utf8_"); ok {
		return "utf8mb3_" + rest
	}
	return name
}

// collations has a line for each: id and name, which begins with that of the character set.
//
//go:embed collations.txt
var collations string

var wellKnown = sync.OnceValue(func() *Collations {
	var list []Collation
	for line := range strings.Lines(collations) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			panic("charset: collations.txt: " + err.Error()) // a broken build
		}
		set, _, _ := strings.Cut(name, "_")
		list = append(list, Collation{ID: uint32(n), Name: name, Charset: set})
	}
	return NewCollations(list)
})
