package canal

import (
	"context"
	"slices"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/canal/schema"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// Cascade says that foreign keys have the server change rows of wanted tables without row events.
type Cascade struct {
	// Parent is the table whose rows are deleted, or changed where foreign keys refer to them.
	Parent ddl.Name
	// Tables are the wanted ones of which rows change with them.
	Tables []string
	// Unread says that we may not read the parent: it is not known which of its columns a row event shows without their
	// names, nor whether foreign keys change its own rows.
	Unread bool
}

// Schema is what the source says of the wanted tables now.
type Schema struct {
	// Tables are those that [Options].Wanted names and our user may see, in the order of their names.
	Tables []*event.Table
	// Cascades are what foreign keys change of these tables without row events.
	Cascades []Cascade
}

// Inspect asks the source for the definitions of the wanted tables.
func Inspect(ctx context.Context, o Options) (*Schema, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return nil, err
	}
	defer s.close()
	out := &Schema{}
	if err := s.wantedTables(&o, out, ""); err != nil {
		return nil, err
	}
	return out, s.cascades(&o, out)
}

// present returns the definition of one table; nil: there is none that we may see.
func (s *session) present(n ddl.Name) (*event.Table, error) {
	o, out := Options{Wanted: func(string, string) bool { return true }}, &Schema{}
	err := s.wantedTables(&o, out, "AND c.TABLE_SCHEMA = "+quote(n.Schema)+" AND c.TABLE_NAME = "+quote(n.Table)+" ")
	if err != nil || len(out.Tables) == 0 {
		return nil, err
	}
	return out.Tables[0], nil
}

// wantedTables asks for the tables that meet more of a condition, "AND … ", besides being wanted.
// Source: MySQL Reference Manual "The INFORMATION_SCHEMA COLUMNS Table": only tables on which the user has some
// privilege are listed.
func (s *session) wantedTables(o *Options, out *Schema, more string) error {
	fold, err := s.foldsNames()
	if err != nil {
		return err
	}
	rows, err := s.rows("SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, " +
		"COALESCE(c.COLLATION_NAME, ''), COALESCE(c.GENERATION_EXPRESSION, ''), VERSION() " +
		"FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) " +
		"WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND c.TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') " +
		more + "ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION")
	if err != nil {
		return err
	}
	var t *event.Table
	for _, r := range rows {
		if t == nil || t.Schema != r[0] || t.Name != r[1] {
			t = &event.Table{Schema: r[0], Name: r[1], FoldNames: fold}
			if o.wanted(fold, t.Schema, t.Name) {
				out.Tables = append(out.Tables, t)
			}
		}
		t.Columns = append(t.Columns, event.Column{
			Name: r[2], Type: r[4], Class: schema.ClassOf(r[3], r[5]), Unsigned: strings.Contains(r[4], "unsigned"),
			Collation: r[5], Computed: strings.Contains(r[7], "MariaDB") && schema.Computed(r[6]),
		})
	}
	return nil
}

// cascades finds out which rows foreign keys change without row events.
func (s *session) cascades(o *Options, out *Schema) error {
	info, err := o.identify(s)
	if err != nil {
		return err
	}
	if silent, err := s.silent(info); err != nil || !silent {
		return err
	}
	t := &tables{l: &loop{Canal: &Canal{o: *o}}}
	if t.fold, err = s.foldsNames(); err != nil {
		return err
	}
	keys, err := s.foreignKeys(t.name)
	if err != nil {
		return err
	}
	for n, p := range parentsOf(keys, t.wantsName) {
		out.Cascades = append(out.Cascades, Cascade{n, p.all(), retry.IsTableDenied(s.touch(n))})
	}
	slices.SortFunc(out.Cascades, func(a, b Cascade) int { return strings.Compare(a.Parent.String(), b.Parent.String()) })
	return nil
}

// Views returns the wanted views that our user may see, without columns. Rows of a view are in the binlog under the
// names of its tables.
func Views(ctx context.Context, o Options) (all []*event.Table, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return nil, err
	}
	defer s.close()
	fold, err := s.foldsNames()
	if err != nil {
		return nil, err
	}
	rows, err := s.rows("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW' ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if o.wanted(fold, r[0], r[1]) {
			all = append(all, &event.Table{Schema: r[0], Name: r[1], FoldNames: fold})
		}
	}
	return all, nil
}

// Elsewhere is a wanted table whose rows are in other tables.
type Elsewhere struct{ Table, Engine string }

// Unseen asks the source for wanted tables that our user may see and not read, and for those of which rows may change
// under the names of other tables.
// Source: MySQL Reference Manual, "Alternative Storage Engines"; MariaDB, "Storage Engines". A row event has the name
// of the table that the statement names: observed for MERGE on MySQL 9.7 and MariaDB 10.11.
func Unseen(ctx context.Context, o Options) (denied []ddl.Name, elsewhere []Elsewhere, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, nil, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	fold, err := s.foldsNames()
	if err != nil {
		return nil, nil, err
	}
	rows, err := s.rows("SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES " +
		"WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', " +
		"'performance_schema', 'sys') ORDER BY 1, 2")
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		n := ddl.Name{Schema: r[0], Table: r[1]}
		if !o.wanted(fold, n.Schema, n.Table) {
			continue
		}
		no, err := s.denied(n)
		if err != nil {
			return nil, nil, err
		}
		if no {
			denied = append(denied, n)
		}
		switch strings.ToUpper(r[2]) {
		case "MRG_MYISAM", "FEDERATED", "CONNECT", "SPIDER":
			elsewhere = append(elsewhere, Elsewhere{n.String(), r[2]})
		}
	}
	return denied, elsewhere, nil
}
