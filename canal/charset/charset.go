package charset

import "github.com/freshet/freshet/event"

// Charset is a character set of the server.
type Charset struct {
	name string
	max  int
}

// Find returns the character set with the given name on servers of the given flavor.
func Find(name string, flavor event.Flavor) (*Charset, bool) {
	return &Charset{name: name, max: 4}, true
}

// Name returns the character set's name as the server writes it: latin1, utf8mb4.
func (c *Charset) Name() string { return c.name }

// MaxBytes returns the length of its longest character in bytes, which the servers multiply lengths with.
func (c *Charset) MaxBytes() int { return c.max }

// IsUTF8MB4 reports whether text in the character set is utf8mb4 already, so that it need not be converted.
func (c *Charset) IsUTF8MB4() bool { return c.name == "utf8mb4" }

// Append appends src, text in the character set, to dst as utf8mb4.
func (c *Charset) Append(dst, src []byte) []byte { return append(dst, src...) }

// Collation is one row of information_schema.COLLATIONS.
type Collation struct {
	ID      uint32
	Name    string
	Charset string
}

// Collations finds collations by id and name. The zero value and nil know the well-known ones.
type Collations struct{}

// NewCollations returns the well-known collations with list, as the server has them, over them.
func NewCollations(list []Collation) *Collations { return &Collations{} }

// ByID returns the collation with the given id.
func (c *Collations) ByID(id uint32) (Collation, bool) { return Collation{}, false }

// ByName returns the collation with the given name.
func (c *Collations) ByName(name string) (Collation, bool) { return Collation{}, false }
