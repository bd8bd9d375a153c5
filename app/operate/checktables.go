package operate

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/lint"
)

// checkTables holds the mappings against the tables as they are now.
func checkTables(ctx context.Context, c *config.Config, o canal.Options, info *canal.SourceInfo, r *Report) {
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	o.Wanted, o.WantedFolded = route.Wants, route.WantsFolded
	s, err := canal.Inspect(ctx, o)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	for _, p := range route.Unfit(s.Tables) {
		r.add(Fail, p.Error(), "")
	}
	findings := append(lint.Remarks(route), lint.Check(route, s.Tables...)...)
	writes := lint.Writes(route)
	if len(writes) > 0 {
		unique, err := canal.UniqueIndexes(ctx, o, s.Tables)
		if err != nil {
			r.add(Fail, err.Error(), "")
			return
		}
		findings = append(findings, lint.Shared(route, s.Tables, unique)...)
	}
	for _, f := range findings {
		r.add(Warn, f.String(), "")
	}
	if !strings.EqualFold(info.RowImage, "FULL") && info.RowImage != "" && len(writes) > 0 {
		var names []string
		for _, w := range writes {
			names = append(names, w.What)
		}
		r.add(Warn, fmt.Sprintf("binlog_row_image is %s: where a row image lacks a column, these delete instead of "+
			"writing: %s", info.RowImage, strings.Join(names, ", ")),
			set(info, "binlog_row_image", "'FULL'"))
	}
	if !logsCascades(info) {
		for _, f := range s.Cascades {
			r.add(Warn, fmt.Sprintf("foreign key %s of %s changes rows of it when rows of %s change (ON UPDATE %s, ON DELETE "+
				"%s), which this server does not write to the binlog: their keys would stay stale",
				f.Constraint, f.Table, f.Parent, f.OnUpdate, f.OnDelete),
				"make the application change those rows, or map "+f.Parent+" to the keys as well; MySQL 9.6 and later logs them")
		}
	}
	if len(s.Tables) > 0 {
		r.add(OK, fmt.Sprintf("%d mapped tables are there", len(s.Tables)), "")
	}
}

// logsCascades reports whether the server writes the rows that foreign keys change to the binlog: MySQL from 9.6 on.
func logsCascades(info *canal.SourceInfo) bool {
	parts := strings.SplitN(info.Version, ".", 3)
	if info.Flavor != event.MySQL || len(parts) < 3 {
		return false
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return major > 9 || major == 9 && minor >= 6
}
