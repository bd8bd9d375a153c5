package mutant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// change is one mutant: the parts of its file.
type change struct {
	name  string // of the file, without its extension
	why   string
	test  string
	says  string
	flags []string
	edits []edit
}

// edit replaces some whole lines of a file.
type edit struct{ file, old, new string }

const extension = ".patch"

// load reads all mutants of a directory, in the order of their names.
func load(dir string) ([]change, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		return nil, err
	}
	var all []change
	var errs []error
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c, err := parse(string(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		c.name = strings.TrimSuffix(filepath.Base(path), extension)
		all = append(all, c)
	}
	if len(paths) == 0 {
		errs = append(errs, fmt.Errorf("%s holds no mutant (*%s)", dir, extension))
	}
	return all, errors.Join(errs...)
}

// parse reads the text of a mutant.
func parse(text string) (change, error) {
	var c change
	head, body, _ := strings.Cut("\n"+text, "\n--- ")
	var why []string
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Test":
			c.test = value
		case "Says":
			c.says = value
		case "Flags":
			c.flags = strings.Fields(value)
		default:
			why = append(why, line)
		}
	}
	c.why = strings.TrimSpace(strings.Join(why, "\n"))
	for _, f := range []struct{ name, value string }{
		{"a reason", c.why}, {"a line Test:", c.test}, {"a line Says:", c.says}, {"a line --- FILE", body},
	} {
		if f.value == "" {
			return c, fmt.Errorf("it lacks %s", f.name)
		}
	}
	for file := range strings.SplitSeq(body, "\n--- ") {
		name, places, _ := strings.Cut(file, "\n")
		for place := range strings.SplitSeq(places, "\n@@\n") {
			e, err := parseEdit(strings.TrimSpace(name), place)
			if err != nil {
				return c, err
			}
			c.edits = append(c.edits, e)
		}
	}
	return c, nil
}

func parseEdit(file, place string) (edit, error) {
	e := edit{file: file}
	for line := range strings.SplitSeq(strings.TrimRight(place, "\n"), "\n") {
		if line == "" { // an empty line that an editor took the space from
			line = " "
		}
		switch rest := line[1:] + "\n"; line[0] {
		case ' ':
			e.old, e.new = e.old+rest, e.new+rest
		case '-':
			e.old += rest
		case '+':
			e.new += rest
		default:
			return e, fmt.Errorf("%s: the line %q begins with none of space, minus and plus", file, line)
		}
	}
	if strings.TrimSpace(e.old) == "" || e.old == e.new {
		return e, fmt.Errorf("%s: a place without text to find, or without a difference", file)
	}
	return e, nil
}

// apply returns the files that the mutant changes in the package of a directory, by absolute path.
func (c *change) apply(dir string) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range c.edits {
		path, err := filepath.Abs(filepath.Join(dir, e.file))
		if err != nil {
			return nil, err
		}
		text, seen := changed[path]
		if !seen {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text = "\n" + string(b) // so that each line has a beginning
		}
		if n := strings.Count(text, "\n"+e.old); n != 1 {
			return nil, fmt.Errorf("it no longer applies: these lines are %d times in %s, want once:\n%s", n, e.file, e.old)
		}
		changed[path] = strings.Replace(text, "\n"+e.old, "\n"+e.new, 1)
	}
	for path, text := range changed {
		changed[path] = text[1:]
	}
	return changed, nil
}

// pattern is what has the test alone run. In the name of a test a space is an underscore.
func (c *change) pattern() string {
	parts := strings.Split(c.test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(strings.ReplaceAll(p, " ", "_")) + "$"
	}
	return strings.Join(parts, "/")
}
