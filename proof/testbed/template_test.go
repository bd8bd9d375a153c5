package testbed

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What a template leaves out are zeros alone, and a copy of it leaves them out too.
func TestACopyOfATemplateIsWhatWasInitialised(t *testing.T) {
	text := bytes.Repeat([]byte("written "), 100)
	zeros := make([]byte, 3*holeBytes)
	files := map[string][]byte{
		"empty":                 {},
		"zeros":                 zeros,
		"short":                 text,
		"zeros, text":           append(zeros[:len(zeros):len(zeros)], text...),
		"text, zeros":           append(text[:len(text):len(text)], zeros...),
		"text in zeros":         bytes.Join([][]byte{zeros, text, zeros, text, zeros[:7]}, nil),
		"zeros for most of it":  append(make([]byte, holeBytes-1), 1),
		"sub/of full and empty": bytes.Join([][]byte{bytes.Repeat([]byte{1}, holeBytes), zeros[:holeBytes], {1}}, nil),
	}
	template, copied := t.TempDir(), filepath.Join(t.TempDir(), "copied")
	Must(t, os.Mkdir(filepath.Join(template, "sub"), 0o700))
	for name, b := range files {
		Must(t, os.WriteFile(filepath.Join(template, name), b, 0o640))
	}
	Must(t, dig(template))
	Must(t, copyTree(copied, template))
	for name, want := range files {
		path := filepath.Join(copied, name)
		have, err := os.ReadFile(path)
		Must(t, err)
		info, err := os.Stat(path)
		Must(t, err)
		if !bytes.Equal(have, want) || info.Mode() != 0o640 {
			t.Errorf("%s: %d bytes, mode %s; want %d bytes with the mode 0640, and the same", name, len(have), info.Mode(),
				len(want))
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && name == "zeros" && s.Blocks*512 > holeBytes {
			t.Errorf("%s takes %d blocks of the disk", name, s.Blocks)
		}
	}
}
