package ddl

import (
	"testing"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/event"
)

// TestLaterBytesOfCharactersAreNotQuotes reads statements of sessions whose character set has characters that end in
// the byte of a backslash, a quote or a letter.
func TestLaterBytesOfCharactersAreNotQuotes(t *testing.T) {
	for _, e := range []struct {
		name  string
		bytes string // a character
		want  string
	}{
		{"gbk", "\xd5\x5c", "誠"},
		{"gbk", "\x81\x60", "乣"},
		{"big5", "\xa5\x5c", "功"},
		{"sjis", "\x83\x5c", "ソ"},
		{"cp932", "\x95\x5c", "表"},
		{"gb18030", "\xd5\x5c", "誠"},
		{"gb18030", "\x81\x30\x81\x30", "\u0080"},
		{"latin1", "\xe9", "é"},
		{"utf8mb4", "é", "é"},
	} {
		cs, ok := charset.Find(e.name, event.MySQL)
		if !ok {
			t.Fatalf("no character set %s", e.name)
		}
		check(t, Session{Charset: cs}, []example{
			{"TRUNCATE `" + e.bytes + "`", "ddl; truncate d." + e.want + " rows"},
			{"TRUNCATE " + e.bytes + "x", "ddl; truncate d." + e.want + "x rows"},
			{
				"ALTER TABLE t ADD `" + e.bytes + "` ENUM('" + e.bytes + "','\\" + e.bytes + "') AFTER a",
				"ddl; alter d.t [add " + e.want + " enum('" + e.want + "','" + e.want + "') after a]",
			},
		})
	}
}
