package canal

import (
	"context"
	"strings"

	"github.com/freshet/freshet/event"
)

// Cascade is a foreign key whose action changes rows of a wanted table behind the statement that was run.
type Cascade struct {
	// Table, schema.table, has the rows that are changed when those of Parent are.
	Table, Parent string
	// Constraint is the key's name; OnUpdate and OnDelete are its rules (CASCADE, SET NULL, …).
	Constraint, OnUpdate, OnDelete string
}

// Schema is what the source says of the wanted tables now.
type Schema struct {
	// Tables are those that [Options].Wanted names and our user may see, in the order of their names.
	Tables []*event.Table
	// Cascades are the foreign keys of these tables that change rows.
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
	if err := s.wantedTables(&o, out); err != nil {
		return nil, err
	}
	return out, s.cascades(&o, out)
}

// Source: MySQL Reference Manual "The INFORMATION_SCHEMA COLUMNS Table": only tables on which the user has some
// privilege are listed.
func (s *session) wantedTables(o *Options, out *Schema) error {
	fold, err := s.foldsNames()
	if err != nil {
		return err
	}
	rows, err := s.rows("SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, " +
		"COALESCE(c.COLLATION_NAME, '') " +
		"FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) " +
		"WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND c.TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') " +
		"ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION")
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
			Name: r[2], Type: r[4], Class: classOf(r[3], r[5]), Unsigned: strings.Contains(r[4], "unsigned"), Collation: r[5],
		})
	}
	return nil
}

// classOf returns the class of a DATA_TYPE of information_schema.
func classOf(dataType, collation string) event.Class {
	switch t := strings.ToLower(dataType); t {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		return event.ClassInt
	case "decimal":
		return event.ClassDecimal
	case "float", "double":
		return event.ClassFloat
	case "date", "time", "datetime", "timestamp", "year":
		return event.ClassTemporal
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit":
		return event.ClassBinary
	case "enum", "set":
		return event.ClassEnum
	case "uuid":
		return event.ClassUUID
	case "inet4", "inet6":
		return event.ClassInet
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		if collation == "" {
			return event.ClassBinary
		}
		return event.ClassText
	case "json", "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
		"geomcollection", "geometrycollection", "vector":
		return event.ClassKeyless
	}
	return event.ClassUnknown
}

func (s *session) cascades(o *Options, out *Schema) error {
	fold, err := s.foldsNames()
	if err != nil {
		return err
	}
	rows, err := s.rows("SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, " +
		"CONSTRAINT_NAME, UPDATE_RULE, DELETE_RULE " +
		"FROM information_schema.REFERENTIAL_CONSTRAINTS ORDER BY 1, 2, 5")
	if err != nil {
		return err
	}
	for _, r := range rows {
		if !o.wanted(fold, r[0], r[1]) || still(r[5]) && still(r[6]) {
			continue
		}
		out.Cascades = append(out.Cascades, Cascade{
			Table: r[0] + "." + r[1], Parent: r[2] + "." + r[3], Constraint: r[4], OnUpdate: r[5], OnDelete: r[6],
		})
	}
	return nil
}

// still reports whether a rule of a foreign key changes no rows.
func still(rule string) bool { return rule == "NO ACTION" || rule == "RESTRICT" }
