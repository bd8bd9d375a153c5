package charset

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
)

func TestTextBecomesUTF8MB4(t *testing.T) {
	for _, c := range []struct{ set, in, want string }{
		{"latin1", "na\xefve \x80 \x81", "naïve € \u0081"}, // cp1252, with what that leaves out as C1 controls
		{"gbk", "\xc4\xe3\xba\xc3 ok", "你好 ok"},
		{"gb18030", "\xc4\xe3\x81\x30\x81\x30\x94\x39\xda\x33", "你\u0080💩"},
		{"sjis", "\x93\xfa\x96\x7b\xb6\xc5", "日本ｶﾅ"},
		{"ujis", "\x8f\xb0\xa1\xc6\xfc\x8e\xb6", "丂日ｶ"},
		{"big5", "\xa7\x41", "你"},
		{"euckr", "\xc7\xd1", "한"},
		{"utf16", "\xd8\x3d\xdc\xa9\x00A", "💩A"},
		{"utf16le", "\x3d\xd8\xa9\xdcA\x00", "💩A"},
		{"utf32", "\x00\x01\xf4\xa9", "💩"},
		{"ucs2", "\x4f\x60", "你"},
		{"utf8", "é你", "é你"},
		{"utf8mb4", "💩\xff", "💩\xff"},
		{"ascii", "a\xe9", "a?"},
		{"cp1251", "\xcc\xe8\xf0", "Мир"},
		// No characters, and halves of them.
		{"gbk", "\x81", "?"},
		{"gbk", "a\xff\x20", "a? "},
		{"utf16", "\xd8\x3d\x00", "?㴀"},
		{"utf8mb3", "a\xf0\x9f\x92\xa9", "a????"},
		{"cp1250", "\x81", "?"},
	} {
		cs, ok := Find(c.set, event.MySQL)
		if !ok {
			t.Errorf("no character set %s", c.set)
			continue
		}
		if got := string(cs.Append([]byte("<"), []byte(c.in))); got != "<"+c.want {
			t.Errorf("%s %x: got %q, want %q", c.set, c.in, got, "<"+c.want)
		}
	}
}

func TestUnknownNamesAreNotFound(t *testing.T) {
	for _, name := range []string{"", "klingon", "binary"} {
		if c, ok := Find(name, event.MySQL); ok {
			t.Errorf("%q is found as %s", name, c.Name())
		}
	}
	if _, ok := Find("gb18030", event.MariaDB); ok {
		t.Error("MariaDB has no gb18030")
	}
	if c, ok := (*Collations)(nil).ByID(99999); ok {
		t.Errorf("99999 is found as %+v", c)
	}
}

func TestWhatTheServerSaysGoesBeforeWhatIsKnown(t *testing.T) {
	c := NewCollations([]Collation{{ID: 8, Name: "mine", Charset: "LATIN1"}})
	if got, ok := c.ByID(8); !ok || got.Name != "mine" || got.Charset != "latin1" {
		t.Errorf("got %+v", got)
	}
	if got, ok := c.ByName("utf8_general_ci"); !ok || got.ID != 33 || got.Charset != "utf8mb3" {
		t.Errorf("got %+v", got)
	}
}

func FuzzAppend(f *testing.F) {
	var sets []*Charset
	for _, c := range unicodeSets {
		sets = append(sets, c)
	}
	for k, c := range tables() {
		if k.flavor == event.MySQL {
			sets = append(sets, c)
		}
	}
	f.Add([]byte("a\x81\x40\x8f\xb0\xa1\x81\x30\x81\x30\xd8\x3d\xdc\xa9"))
	f.Add([]byte{0xff, 0xfe, 0x8f, 0xa1})
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, c := range sets {
			got := c.Append(nil, src)
			if len(got) > 4*len(src) {
				t.Errorf("%s: %x becomes %d bytes", c.Name(), src, len(got))
			}
			// Halves of surrogate pairs pass, as in MariaDB.
			if !c.IsUTF8MB4() && !utf8.Valid(got) && !bytes.Contains(got, []byte{0xed}) {
				t.Errorf("%s: %x becomes %x", c.Name(), src, got)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	src := bytes.Repeat([]byte("plain text \xc4\xe3"), 8)
	for _, name := range []string{"latin1", "gbk", "utf8mb3"} {
		c, _ := Find(name, event.MySQL)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = c.Append(dst[:0], src)
			}
		})
	}
}
