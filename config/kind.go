package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/config/spec"
)

// kind is a type of value: how it is read from its text, and written back.
type kind[T any] struct {
	// name is what the documentation calls it.
	name string
	// parse reads a text. Its faults begin with the value, where that is no secret.
	parse func(text string) (T, *fault)
	// format is parse's inverse.
	format func(T) string
	// bare: the text is written without quotes, even where YAML could take it for a number.
	bare bool
	// distinct: a list holds no value twice.
	distinct bool
}

// anyText is a text that may hold anything.
func anyText() kind[string] {
	return kind[string]{
		name:   "text",
		parse:  func(s string) (string, *fault) { return s, nil },
		format: func(s string) string { return s },
	}
}

// path is the name of a file or directory.
func path() kind[string] {
	k := anyText()
	k.name = "path"
	return k
}

// secrets are texts that are never shown.
func secrets() kind[Secret] {
	return kind[Secret]{
		name:   "secret",
		parse:  func(s string) (Secret, *fault) { return NewSecret(s), nil },
		format: Secret.String,
	}
}

// names are what goes into topics, groups and metric labels.
func names(most int) kind[string] {
	k := anyText()
	k.name = fmt.Sprintf("name, up to %d characters", most)
	allowed := regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	k.parse = func(s string) (string, *fault) {
		switch {
		case s == "":
			return s, &fault{"is empty", "write a name, or remove the key for the default"}
		case !allowed.MatchString(s):
			return s, &fault{spec.Quote(s) + " is not a name", "write letters, digits, dots, underscores and hyphens only"}
		case len(s) > most:
			return s, &fault{spec.Quote(s) + " is too long", fmt.Sprintf("write at most %d characters", most)}
		}
		return s, nil
	}
	return k
}

// oneOfThe are enumerations of texts, the default first.
func oneOfThe[T ~string](values ...T) kind[T] {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return kind[T]{
		name: list(words, "or"),
		parse: func(s string) (T, *fault) {
			f := enumerated(s, words)
			return T(s), f
		},
		format: func(v T) string { return string(v) },
	}
}

// enumerated checks that s is one of the words.
func enumerated(s string, words []string) *fault {
	off := ""
	for _, w := range words {
		if w == s {
			return nil
		}
		if w == "none" || w == "disabled" {
			off = w
		}
	}
	f := &fault{spec.Quote(s) + " is unknown", oneOf(s, words)}
	if s == "" {
		f.what = "is empty"
	}
	if off != "" && switchedOff(s) {
		f.do = fmt.Sprintf("write %s to switch it off", off)
	}
	return f
}

// booleans are true and false, and nothing else that YAML readers take for them.
func booleans() kind[bool] {
	return kind[bool]{
		name: "true or false",
		parse: func(s string) (bool, *fault) {
			switch s {
			case "true":
				return true, nil
			case "false":
				return false, nil
			}
			return false, &fault{spec.Quote(s) + " is unknown", "write true or false"}
		},
		format: strconv.FormatBool,
		bare:   true,
	}
}

// integers are whole numbers from lo to hi.
func integers[T int | int64 | uint32](lo, hi int64) kind[T] {
	return kind[T]{
		name: fmt.Sprintf("integer, %d to %d", lo, hi),
		parse: func(s string) (T, *fault) {
			n, err := strconv.ParseInt(s, 10, 64)
			switch {
			case err != nil && digits(s) != "":
				return 0, &fault{spec.Quote(s) + " is not a plain whole number", "write " + digits(s)}
			case err != nil:
				return 0, &fault{spec.Quote(s) + " is not a whole number", fmt.Sprintf("write one from %d to %d", lo, hi)}
			case n < 0 && lo >= 0:
				return 0, &fault{s + " is negative", fmt.Sprintf("write a number from %d to %d", lo, hi)}
			case n < lo || n > hi:
				return 0, &fault{fmt.Sprintf("%d is out of range", n), fmt.Sprintf("write a number from %d to %d", lo, hi)}
			}
			return T(n), nil
		},
		format: func(n T) string { return strconv.FormatInt(int64(n), 10) },
		bare:   true,
	}
}

// digits returns the number that is written in s in a way other tools take: 50_000, 50,000, 50k, 50000/s.
func digits(s string) string {
	m := regexp.MustCompile(`^\+?([0-9][0-9_,]*)([kKmM]?)(?:/s)?$`).FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	n := strings.NewReplacer("_", "", ",", "").Replace(m[1])
	zeros := map[string]string{"k": "000", "m": "000000"}[strings.ToLower(m[2])]
	if len(n+zeros) > 18 {
		return ""
	}
	return n + zeros
}

// orWord lets a kind also be a word, none or auto, which stands for its zero value.
func orWord[T comparable](k kind[T], word string) kind[T] {
	var zero T
	parse, format := k.parse, k.format
	k.name += ", or " + word
	k.parse = func(s string) (T, *fault) {
		if s == word {
			return zero, nil
		}
		v, f := parse(s)
		switch {
		case f == nil && v == zero, f != nil && word == "none" && (switchedOff(s) || zeroed(s)):
			return zero, &fault{spec.Quote(s) + " does not switch it off", "write " + word}
		case f != nil && strings.EqualFold(s, word):
			return zero, &fault{f.what, "write " + word}
		}
		return v, f
	}
	k.format = func(v T) string {
		if v == zero {
			return word
		}
		return format(v)
	}
	return k
}

// zeroed reports whether s is nothing, with or without a unit.
func zeroed(s string) bool {
	n, _, ok := measure(s)
	return ok && n == 0
}

// measure splits a number from what follows it.
func measure(s string) (n float64, unit string, ok bool) {
	s = strings.TrimSpace(s)
	i := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("+-.0123456789", r) })
	if i < 0 {
		i = len(s)
	}
	n, err := strconv.ParseFloat(s[:i], 64)
	return n, strings.TrimSpace(s[i:]), err == nil
}

// durations are times from lo to hi, as Go writes them.
func durations(lo, hi time.Duration) kind[time.Duration] {
	return kind[time.Duration]{
		name: fmt.Sprintf("duration, %s to %s", shortDuration(lo), shortDuration(hi)),
		parse: func(s string) (time.Duration, *fault) {
			d, err := time.ParseDuration(s)
			n, unit, isNumber := measure(s)
			between := fmt.Sprintf("write one from %s to %s", shortDuration(lo), shortDuration(hi))
			switch {
			case s == "":
				return 0, &fault{"is empty", between}
			case isNumber && n < 0:
				return 0, &fault{s + " is negative", between}
			case isNumber && unit == "" && n != 0:
				return 0, &fault{s + " has no unit", "write " + s + "s"}
			case err != nil:
				return 0, &fault{spec.Quote(s) + " is not a duration", durationHint(s, between)}
			case d < lo || d > hi:
				return 0, &fault{s + " is out of range", between}
			}
			return d, nil
		},
		format: shortDuration,
		bare:   true,
	}
}

// durationHint writes a duration of another spelling as it should be.
func durationHint(s, otherwise string) string {
	if switchedOff(s) {
		return "it cannot be switched off: " + otherwise
	}
	n, unit, ok := measure(s)
	if !ok {
		return "write it as 500ms, 2s or 1m30s"
	}
	units := map[string]time.Duration{
		"ms": time.Millisecond, "msec": time.Millisecond, "msecs": time.Millisecond, "millis": time.Millisecond,
		"millisecond": time.Millisecond, "milliseconds": time.Millisecond,
		"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
		"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
		"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
		"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour, "w": 168 * time.Hour,
	}
	u, known := units[strings.ToLower(unit)]
	d := n * float64(u)
	switch {
	case !known:
		return "its units are ms, s, m and h"
	case d > math.MaxInt64/2:
		return otherwise
	}
	return "write " + shortDuration(time.Duration(d))
}

// shortDuration leaves out the zeros that Duration.String ends with: 1m, not 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sizeUnit is a unit of a size.
type sizeUnit struct {
	name  string
	bytes int64
}

// sizeUnits are the units of a size, the largest first, the binary ones before the others.
func sizeUnits() []sizeUnit {
	return []sizeUnit{
		{"TiB", 1 << 40},
		{"GiB", 1 << 30},
		{"MiB", 1 << 20},
		{"KiB", 1 << 10},
		{"TB", 1e12},
		{"GB", 1e9},
		{"MB", 1e6},
		{"KB", 1e3},
		{"B", 1},
	}
}

// sizes are bytes from lo to hi.
func sizes(lo, hi int64) kind[int64] {
	return kind[int64]{
		name: fmt.Sprintf("size, %s to %s", formatSize(lo), formatSize(hi)),
		parse: func(s string) (int64, *fault) {
			n, unit, isNumber := measure(s)
			between := fmt.Sprintf("write one from %s to %s", formatSize(lo), formatSize(hi))
			switch {
			case s == "":
				return 0, &fault{"is empty", between}
			case !isNumber:
				return 0, &fault{spec.Quote(s) + " is not a size", "write it as 64MiB or 1GiB"}
			case n < 0:
				return 0, &fault{s + " is negative", between}
			case unit == "":
				return 0, &fault{s + " has no unit", "write " + withSizeUnit(s, n) + ", or the right unit"}
			}
			for _, u := range sizeUnits() {
				if unit != u.name || strings.ContainsAny(s, " +") {
					continue
				}
				if b := n * float64(u.bytes); b >= float64(lo) && b <= float64(hi) {
					return int64(b), nil
				}
				return 0, &fault{s + " is out of range", between}
			}
			return 0, &fault{spec.Quote(s) + " is not a size", sizeHint(s, unit)}
		},
		format: formatSize,
		bare:   true,
	}
}

// withSizeUnit guesses what a bare number counts: bytes when it is large.
func withSizeUnit(s string, n float64) string {
	if n >= 1<<20 && n < 1<<62 {
		return formatSize(int64(n))
	}
	return s + "MiB"
}

// sizeHint writes a size of another spelling as it should be.
func sizeHint(s, unit string) string {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(s), "+"), unit))
	for _, u := range sizeUnits() {
		// 64m, 64Mi and 64MIB are all meant to be 64MiB.
		if l := strings.ToLower(u.name); l == strings.ToLower(unit) || strings.TrimSuffix(l, "b") == strings.ToLower(unit) ||
			(len(l) == 3 && l[:1] == strings.ToLower(unit)) {
			return "write " + number + u.name
		}
	}
	return "its units are KiB, MiB, GiB, KB, MB and GB"
}

// formatSize writes bytes in the largest unit that leaves no rest.
func formatSize(n int64) string {
	for _, u := range sizeUnits() {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}
