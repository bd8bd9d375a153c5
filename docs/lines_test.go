package docs

import (
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// longestLine is how many characters a line of code has at most; a tab is one.
	longestLine = 120
	// longString is from how many bytes on a string excuses the line that it is in: not every one can be broken.
	longString = 50
)

// aligned are the spaces by which gofmt puts things below each other: nobody can break a line there.
var aligned = regexp.MustCompile(" +")

// A line can be read without scrolling. What make format does not do, one break at the outermost comma does.
func TestNoLineOfCodeIsTooLong(t *testing.T) {
	for file, text := range files(t, ".go") {
		for _, n := range tooLong(text) {
			t.Errorf("%s:%d is longer than %d characters", file, n, longestLine)
		}
	}
}

func TestALongLineIsExcusedByALongString(t *testing.T) {
	code, long := strings.Repeat("x", longestLine), strings.Repeat("s", longString)
	text := "package p\nvar " + code + " int\n// " + code + "\nvar a = `" + long + "\n" + code + "`\nvar _, " + code +
		" = 1, \"" + long + "\"\n"
	if got := tooLong(text); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("lines %v, want 2 and 3", got)
	}
}

// tooLong returns the numbers of the lines that are too long.
func tooLong(text string) (numbers []int) {
	for i, line := range strings.Split(text, "\n") {
		if len(line) > longestLine && utf8.RuneCountInString(aligned.ReplaceAllString(line, " ")) > longestLine {
			numbers = append(numbers, i+1)
		}
	}
	if numbers == nil {
		return nil
	}
	excused := excused(text)
	return slices.DeleteFunc(numbers, func(n int) bool { return excused[n] })
}

// excused returns the lines that have a part of a long string, or of the output of an example.
func excused(text string) map[int]bool {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		output := tok == token.COMMENT && strings.HasPrefix(lit, "// Output:") // of an example
		if !output && (tok != token.STRING || len(lit) < longString) {
			continue
		}
		first := file.Line(pos)
		for n := range 1 + strings.Count(lit, "\n") {
			lines[first+n] = true
		}
	}
}
