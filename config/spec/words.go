package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Sentence joins the parts of a message, "where: what: what to do", without those that are empty.
func Sentence(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// Quote shows a text of the configuration that is no secret, cut to a length that a line can take.
func Quote(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}

// Names lists names for a message, sorted, no more than a line can take.
func Names(names []string) string {
	const most = 20
	names = slices.Sorted(slices.Values(names))
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return strings.Join(names, ", ")
}

// Suggest says which of the names to write: the nearest one, or else what otherwise says.
func Suggest(name string, names []string, otherwise string) string {
	if n := Nearest(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return otherwise
}

// longest is the longest name that is looked at, in bytes: the time for a pair is the product of both lengths.
const longest = 128

// Nearest returns the candidate that was most likely meant by name, or "" when none is near: at most a third of the
// shorter one was mistyped, or one is the beginning of the other (addr, addresses). Spelling does not count: serverId,
// server-id and SERVER_ID are all server_id. A name longer than 128 bytes has none.
func Nearest(name string, candidates []string) string {
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	n := plain.Replace(strings.ToLower(name))
	best, least := "", 1<<30
	for _, c := range candidates {
		if len(name) > longest || len(c) > longest {
			continue
		}
		p := plain.Replace(strings.ToLower(c))
		d, shorter := Distance(n, p), min(len(n), len(p))
		near := d <= max(1, shorter/3) || shorter >= 3 && (strings.HasPrefix(n, p) || strings.HasPrefix(p, n))
		if near && d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance counts the bytes to insert, delete or change, or to swap with a neighbour, to make b of a. Beyond 128 bytes
// it is that of names that have nothing in common.
func Distance(a, b string) int {
	if len(a) > longest || len(b) > longest {
		return len(a) + len(b)
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, before := rows[i%3], rows[(i+2)%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
