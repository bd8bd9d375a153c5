package config

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// Check looks at a configuration for problems that this package cannot know of. It is called on every load, also when
// there are problems already; c then holds what could be read: every mapping in it has a table and something to do, and
// every action that it has is whole. It must not keep c.
type Check func(c *Config) spec.Problems

// fault is what is wrong with a value and what to do, without saying where.
type fault struct{ what, do string }

// at reports a key's fault: what goes on from the key's name ("is empty"), or stands by itself.
func (l *loader) at(pos spec.Pos, path string, f *fault) {
	between := ": "
	if strings.HasPrefix(f.what, "is ") || strings.HasPrefix(f.what, "has ") {
		between = " "
	}
	l.Add(pos, path+between+f.what, f.do)
}

// oneOf says which of the names to write: the nearest one, or all of them.
func oneOf(name string, names []string) string {
	return spec.Suggest(name, names, "write "+list(names, "or"))
}

// oneOfKeys says which key was meant: the nearest one, or one of them all.
func oneOfKeys(name string, names []string) string {
	return spec.Suggest(name, names, "its keys are "+list(names, "and"))
}

// list joins words as a sentence does.
func list(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	n := len(words) - 1
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// switchedOff reports whether the text is a word that people write to switch something off.
func switchedOff(s string) bool {
	return slices.Contains([]string{
		"off", "no", "false", "n", "never", "null", "nil", "~", "disable", "disabled", "none",
		"-", "0",
	}, strings.ToLower(s))
}
