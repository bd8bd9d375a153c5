package charset

import (
	"strings"

	"github.com/freshet/freshet/event"
)

// Charset is a character set of the server.
type Charset struct {
	name    string
	max     int
	utf8mb4 bool
	convert func(dst, src []byte) []byte
}

// Name returns the character set's name as the server writes it: latin1, utf8mb4.
func (c *Charset) Name() string { return c.name }

// MaxBytes returns the length of its longest character in bytes, which the servers multiply lengths with.
func (c *Charset) MaxBytes() int { return c.max }

// IsUTF8MB4 reports whether text in the character set is utf8mb4 already, so that it need not be converted.
func (c *Charset) IsUTF8MB4() bool { return c.utf8mb4 }

// Append appends src, text in the character set, to dst as utf8mb4. It does not fail: what cannot be converted becomes
// a question mark. src may lie in the memory of dst before its length.
func (c *Charset) Append(dst, src []byte) []byte { return c.convert(dst, src) }

// Find returns the character set with the given name on servers of the given flavor; "utf8" is utf8mb3. There is none
// with the name binary: its bytes are not text.
func Find(name string, flavor event.Flavor) (*Charset, bool) {
	name = strings.ToLower(name)
	if name == "utf8" {
		name = "utf8mb3"
	}
	if c, ok := unicodeSets[name]; ok {
		return c, true
	}
	c, ok := tables()[key{name, flavor}]
	return c, ok
}

// unicodeSets are the character sets that need no table. It is never written to.
var unicodeSets = map[string]*Charset{
	"ascii":   {name: "ascii", max: 1, convert: appendASCII},
	"utf8mb3": {name: "utf8mb3", max: 3, convert: appendUTF8MB3},
	"utf8mb4": {name: "utf8mb4", max: 4, utf8mb4: true, convert: appendBytes},
	"ucs2":    {name: "ucs2", max: 2, convert: appendUCS2},
	"utf16":   {name: "utf16", max: 4, convert: appendUTF16},
	"utf16le": {name: "utf16le", max: 4, convert: appendUTF16LE},
	"utf32":   {name: "utf32", max: 4, convert: appendUTF32},
}
