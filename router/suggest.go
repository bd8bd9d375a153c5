package router

import (
	"fmt"
	"slices"
	"strings"
)

// nearest returns the candidate that was most likely meant by name, or "" when none is near: at most a third of the
// name was mistyped, or one is the beginning of the other.
func nearest(name string, candidates []string) string {
	const longest = 128
	if len(name) > longest {
		return ""
	}
	plain := strings.NewReplacer("_", "", "-", "")
	n := plain.Replace(strings.ToLower(name))
	best, least := "", 1<<30
	for _, c := range candidates {
		if len(c) > longest {
			continue
		}
		p := plain.Replace(strings.ToLower(c))
		d := distance(n, p)
		near := d <= max(1, min(len(n), len(p))/3)
		short := min(len(n), len(p)) >= 3 && (strings.HasPrefix(n, p) || strings.HasPrefix(p, n))
		if (near || short) && d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete or change, or to swap with a neighbour, to make b of a.
func distance(a, b string) int {
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

// suggest says which of the names to write: the nearest one, or else what otherwise says.
func suggest(name string, names []string, otherwise string) string {
	if n := nearest(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return otherwise
}

// oneOf lists names for a sentence, sorted, no more than a line can take.
func oneOf(names []string) string {
	const most = 20
	names = slices.Sorted(slices.Values(names))
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return strings.Join(names, ", ")
}
