package config

import (
	"fmt"
	"slices"
	"strings"
)

// nearest returns the candidate that was most likely meant by name, or "" when none is near.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 1<<30
	n := plain(name)
	for _, c := range candidates {
		p := plain(c)
		d := distance(n, p)
		// Two slips in a longer word, one in a short one; or the one word holds the other (addr, addresses).
		near := d <= max(1, min(len(n), len(p))/3)
		if !near && len(n) >= 3 && len(p) >= 3 && (strings.HasPrefix(p, n) || strings.HasPrefix(n, p)) {
			near = true
		}
		if near && d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// plain takes the spelling out of a name: serverId, server-id and SERVER_ID are all server_id.
func plain(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the characters to insert, delete, change or swap with a neighbour to make b of a. Words longer
// than 64 bytes are never near.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 1 << 20
	}
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}

// oneOf says which of the names to write: the nearest one, or all of them.
func oneOf(name string, names []string) string {
	if n := nearest(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "write " + list(names, "or")
}

// oneOfKeys says which key was meant: the nearest one, or one of them all.
func oneOfKeys(name string, names []string) string {
	if n := nearest(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "its keys are " + list(names, "and")
}

// list joins words as a sentence does.
func list(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	n := len(words) - 1
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// quote shows a value that is no secret, cut to a length that a line can take.
func quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// switchedOff reports whether the text is a word that people write to switch something off.
func switchedOff(s string) bool {
	return slices.Contains([]string{"off", "no", "false", "n", "never", "null", "nil", "~", "disable", "disabled", "none", "-", "0"}, strings.ToLower(s))
}
