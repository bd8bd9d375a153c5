package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/freshet/freshet/config/spec"
)

// maxFile bounds a configuration file, in bytes: some ten thousand mappings.
const maxFile = 4 << 20

// parse reads the file's one YAML document and returns its top mapping, or nil after reporting why there is none.
func parse(file string, data []byte, problems *spec.Collector) *yaml.Node {
	whole := spec.Pos{File: file}
	if len(data) > maxFile {
		problems.Add(whole, fmt.Sprintf("the file has %d bytes", len(data)),
			fmt.Sprintf("at most %s are read; match shards with one pattern each", formatSize(maxFile)))
		return nil
	}
	if p, ok := badCharacter(file, data); !ok {
		problems.Add(p, "a character that YAML does not allow stands here",
			"save the file as UTF-8 and write other characters as \"\\xNN\" in double quotes")
		return nil
	}
	doc, next, err := decode(data)
	switch {
	case errors.Is(err, io.EOF):
		problems.Add(whole, "the file is empty",
			"write at least source, redis and mappings; docs/configuration.md has every key")
		return nil
	case err != nil:
		at, what, do := syntaxFault(file, data, err)
		problems.Add(at, what, do)
		return nil
	case next != nil:
		problems.Add(spec.At(file, next.Line, next.Column), "a second YAML document begins here",
			"write everything into the first one")
		return nil
	}
	top := doc.Content[0]
	switch {
	case top.Kind == yaml.ScalarNode && top.Tag == "!!null":
		problems.Add(whole, "the file is empty",
			"write at least source, redis and mappings; docs/configuration.md has every key")
		return nil
	case top.Kind != yaml.MappingNode:
		problems.Add(spec.At(file, top.Line, top.Column), "the file does not consist of keys",
			"write source:, redis: and mappings: at the beginning of lines")
		return nil
	}
	return top
}

// decode returns the first document of the data and the second one, if there is one.
func decode(data []byte) (first, second *yaml.Node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	first, second = new(yaml.Node), new(yaml.Node)
	if err := d.Decode(first); err != nil {
		return nil, nil, err
	}
	if err := d.Decode(second); errors.Is(err, io.EOF) {
		return first, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	return first, second, nil
}

// badCharacter returns the place of the first byte or character that no YAML file holds. The YAML package stops at
// it without saying where.
func badCharacter(file string, data []byte) (spec.Pos, bool) {
	p := spec.At(file, 1, 1)
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && n == 1,
			r < 0x20 && r != '\t' && r != '\n' && r != '\r',
			r >= 0x7F && r < 0xA0 && r != 0x85,
			r == 0xFEFF || r == 0xFFFE || r == 0xFFFF:
			return p, false
		}
		p.Column++
		if r == '\n' {
			p.Line, p.Column = p.Line+1, 1
		}
		data = data[n:]
	}
	return p, true
}

// bare returns the YAML package's message without the line number that it begins with.
func bare(err error) string {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if numbered, ok := strings.CutPrefix(message, "line "); ok {
		if _, after, ok := strings.Cut(numbered, ": "); ok {
			return after
		}
	}
	return message
}

// syntaxFault says where and what a syntax error is. The line in the YAML package's message is now the error's, now
// the one before it, now where the section around it began, so the place is searched again: it is the first line with
// which the file's beginning fails in the same way.
func syntaxFault(file string, data []byte, err error) (at spec.Pos, what, do string) {
	message := bare(err)
	rows := bytes.SplitAfter(data, []byte("\n"))
	lo, hi := 1, len(rows)
	for lo < hi {
		mid := (lo + hi) / 2
		_, _, err := decode(bytes.Join(rows[:mid], nil))
		if err != nil && bare(err) == message {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	row := string(rows[lo-1])
	at = spec.At(file, lo, 1+len(row)-len(strings.TrimLeft(row, " \t")))
	if strings.HasPrefix(message, "unknown anchor") {
		// The message names the anchor, which is the rest of a password that begins with an asterisk.
		if i := strings.IndexByte(row, '*'); i >= 0 {
			at.Column = 1 + utf8.RuneCountInString(row[:i])
		}
		return at, "a value begins with *, which makes it a YAML alias of an anchor that does not exist",
			"put the value in quotes"
	}
	return at, "this is not YAML: " + message, syntaxHint(message)
}

// syntaxHint says how a syntax error is usually fixed.
func syntaxHint(message string) string {
	for _, h := range []struct{ part, do string }{
		{"mapping values are not allowed", "put a value that holds a colon and a space in quotes, or fix the indentation"},
		{"cannot start any token", "put a value that begins with @, ` or % in quotes, and indent with spaces"},
		{"tab character", "indent with spaces"},
		{"could not find expected ':'", "write key: value"},
		{"did not find expected key", "fix the indentation or the quotes of this line"},
		{"expected ',' or", "close the bracket"},
		{"unexpected end of stream", "close the quote"},
		{"escape character", "write a backslash twice within double quotes, or use single quotes"},
		{"block sequence entries", "fix the indentation of the list"},
	} {
		if strings.Contains(message, h.part) {
			return h.do
		}
	}
	return "fix this line, or the one before it"
}
