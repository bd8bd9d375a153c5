package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/lint"
)

// checkTables holds the mappings against the tables as they are now, which it returns.
func checkTables(ctx context.Context, c *config.Config, o canal.Options, info *canal.SourceInfo,
	r *Report,
) []*event.Table {
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		r.add(Fail, err.Error(), "")
		return nil
	}
	connect.Routed(&o, route)
	s, err := canal.Inspect(ctx, o)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return nil
	}
	misfits := route.Unfit(s.Tables)
	var views []*event.Table
	if slices.ContainsFunc(misfits, func(p router.Misfit) bool { return p.Mapping != nil }) {
		views, _ = canal.Views(ctx, o) // they only say more
	}
	for _, p := range misfits {
		r.add(Fail, p.Problem.Error(), isView(views, p.Mapping))
	}
	findings := append(lint.Remarks(route), lint.Check(route, s.Tables...)...)
	writes := lint.Writes(route)
	if len(writes) > 0 {
		unique, err := canal.UniqueIndexes(ctx, o, s.Tables)
		if err != nil {
			r.add(Fail, err.Error(), "")
			return nil
		}
		findings = append(findings, lint.Shared(route, s.Tables, unique)...)
	}
	for _, f := range findings {
		r.add(Warn, f.String(), "")
	}
	checkComputed(info, route, s.Tables, r)
	checkPartial(info, route, s.Tables, r)
	if !wholeImages(info) && len(writes) > 0 {
		var names []string
		for _, w := range writes {
			names = append(names, w.What)
		}
		r.add(Warn, fmt.Sprintf("binlog_row_image is %s: where a row image lacks a column, these delete instead of "+
			"writing: %s", info.RowImage, strings.Join(names, ", ")),
			set(info, "binlog_row_image", "'FULL'"))
	}
	for i := range c.Mappings {
		if m := &c.Mappings[i]; m.ScopeRows {
			r.add(Warn, fmt.Sprintf("%s: scope: rows: doubts about %s are answered by reading its rows, so that cached keys of "+
				"rows that are gone are not found, as after a TRUNCATE", m.Pos, m.Table.Value), "write scope: keys, or what free "+
				"text in the keys may be")
		}
	}
	for i := range s.Cascades {
		checkCascade(c, info, &s.Cascades[i], r)
	}
	checkUnseen(ctx, c, o, info, r)
	if len(s.Tables) > 0 {
		r.add(OK, fmt.Sprintf("%d mapped tables are there", len(s.Tables)), "")
	}
	return s.Tables
}

// isView says what to do where what a mapping names is a view; "": it names none.
func isView(views []*event.Table, m *router.Mapping) string {
	i := -1
	if m != nil {
		i = slices.IndexFunc(views, m.Matches)
	}
	if i < 0 {
		return "" // that there is no such table has been said
	}
	return views[i].String() + " is a view, whose changes are in the binlog under the names of its tables: map those"
}

// checkCascade says what foreign keys change that freshet cannot see.
func checkCascade(c *config.Config, info *canal.SourceInfo, f *canal.Cascade, r *Report) {
	then := "freshet then forgets all keys of these tables"
	if c.OnCascade == config.CascadeIgnore {
		then = "their keys stay stale then (on_cascade: ignore)"
	}
	r.add(Warn, fmt.Sprintf("foreign keys change rows of %s when a row of %s is deleted, or a column of it that they refer "+
		"to is changed, and this server does not write that to the binlog: %s", strings.Join(f.Tables, ", "), f.Parent, then),
		"have the application change those rows first; MySQL 9.6 and later logs them")
	if f.Unread {
		r.add(Warn, "the user may not read "+f.Parent.String()+": without binlog_row_metadata=FULL each change of its rows counts as one "+
			"that foreign keys refer to, and foreign keys that change its own rows are not seen",
			grantSelect(c, info, f.Parent))
	}
}

// checkUnseen names the mapped tables that the user may not read, and those whose rows are in others.
func checkUnseen(ctx context.Context, c *config.Config, o canal.Options, info *canal.SourceInfo, r *Report) {
	denied, elsewhere, err := canal.Unseen(ctx, o)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	for _, t := range denied {
		r.add(Fail, "the user may not read mapped table "+t.String()+": without binlog_row_metadata=FULL its rows cannot be read, and "+
			"foreign keys that change them are not seen", grantSelect(c, info, t))
	}
	for _, t := range elsewhere {
		r.add(Warn, fmt.Sprintf("mapped table %s has the engine %s, so its rows are in other tables: what changes there is not in "+
			"the binlog under its name, and its keys stay stale", t.Table, t.Engine), "map the tables that hold the rows")
	}
}

// grantSelect returns the statement that lets our user read a table.
func grantSelect(c *config.Config, info *canal.SourceInfo, table ddl.Name) string {
	return fmt.Sprintf("GRANT SELECT ON %s TO %s;", table.SQL(), account(c, info))
}
