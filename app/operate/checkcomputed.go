package operate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// wholeImages reports whether row images have all columns, or say what they leave out: after an UPDATE MariaDB's
// FULL_NODUP leaves out what has not changed. For columns that an expression makes see checkComputed.
func wholeImages(info *canal.SourceInfo) bool {
	image := strings.ToUpper(info.RowImage)
	return image == "FULL" || image == "" || image == "FULL_NODUP"
}

// checkComputed says which columns that mappings need the server leaves out of row images because an expression makes
// them.
func checkComputed(info *canal.SourceInfo, route *router.Router, tables []*event.Table, r *Report) {
	if !leavesComputedOut(info) {
		return
	}
	for _, t := range tables {
		names := needed(route, t, func(c *event.Column, _ bool) bool { return c.Computed })
		if len(names) == 0 {
			continue
		}
		r.add(Warn, fmt.Sprintf("%s: MariaDB %s leaves columns that an expression makes out of the rows of an UPDATE or a "+
			"DELETE, and mappings need %s: each such change forgets all keys of the table, or deletes what it would write",
			t, info.Version, strings.Join(names, ", ")),
			"make keys and values of the columns that they are computed from, or of plain ones that a BEFORE trigger fills "+
				"(docs/versions.md)")
	}
}

// checkPartial says which JSON columns that mappings need are in row images in part only.
//
// Source: MySQL Reference Manual, "Binary Logging Options and Variables", binlog_row_value_options.
func checkPartial(info *canal.SourceInfo, route *router.Router, tables []*event.Table, r *Report) {
	if !strings.Contains(strings.ToUpper(info.RowValueOptions), "PARTIAL_JSON") {
		return
	}
	for _, t := range tables {
		names := needed(route, t, func(c *event.Column, text bool) bool { return text && c.Class == event.ClassJSON })
		if len(names) == 0 {
			continue
		}
		r.add(Warn, fmt.Sprintf("%s: binlog_row_value_options is %s: where a JSON column is changed in part, row images have "+
			"that part alone, and mappings need %s: such a change forgets all keys of the table, or deletes what it would write",
			t, info.RowValueOptions, strings.Join(names, ", ")),
			set(info, "binlog_row_value_options", "''"))
	}
}

// needed returns the names of those columns that mappings need, as text or only to compare them, and that are meant.
func needed(route *router.Router, t *event.Table, meant func(c *event.Column, text bool) bool) (names []string) {
	needs, _ := route.Bind(t) // what is wrong with it has been said
	for _, n := range needs {
		if c := &t.Columns[n.Column]; meant(c, n.Text) {
			names = append(names, c.Name)
		}
	}
	return names
}

// leavesComputedOut reports whether the server may leave columns that an expression makes out of row images though
// binlog_row_image is FULL, or FULL_NODUP. Observed: 11.4.5 does so with FULL_NODUP only, 11.8.9 always; 10.11.19
// has no FULL_NODUP.
func leavesComputedOut(info *canal.SourceInfo) bool {
	if info.Flavor != event.MariaDB {
		return false
	}
	major, rest, _ := strings.Cut(info.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a > 11 || a == 11 && b > 4 || strings.EqualFold(info.RowImage, "FULL_NODUP")
}
