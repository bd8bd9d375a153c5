package canal

import (
	"context"

	"github.com/freshet/freshet/event"
)

// UniqueIndexes asks the source for the columns of each unique index of the tables, the primary key among them. A part
// of an index that is an expression is a column without a name.
func UniqueIndexes(ctx context.Context, o Options, tables []*event.Table) (map[*event.Table][][]string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return nil, err
	}
	defer s.close()
	// Source: MySQL Reference Manual "The INFORMATION_SCHEMA STATISTICS Table": one row for each column of each index.
	rows, err := s.rows("SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(COLUMN_NAME, ''), SEQ_IN_INDEX FROM " +
		"information_schema.STATISTICS " +
		"WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') " +
		"ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX")
	if err != nil {
		return nil, err
	}
	byName := map[[2]string]*event.Table{}
	for _, t := range tables {
		byName[[2]string{t.Schema, t.Name}] = t
	}
	out := map[*event.Table][][]string{}
	for _, r := range rows {
		t := byName[[2]string{r[0], r[1]}]
		if t == nil {
			continue
		}
		if r[3] == "1" {
			out[t] = append(out[t], nil)
		}
		last := &out[t][len(out[t])-1]
		*last = append(*last, r[2])
	}
	return out, nil
}
