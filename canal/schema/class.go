package schema

import (
	"strings"

	"github.com/freshet/freshet/event"
)

// ClassOf returns the class of a DATA_TYPE of information_schema, with the COLLATION_NAME of its column.
func ClassOf(dataType, collation string) event.Class {
	switch t := strings.ToLower(dataType); t {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		return event.ClassInt
	case "decimal":
		return event.ClassDecimal
	case "float", "double":
		return event.ClassFloat
	case "date", "time", "datetime", "timestamp", "year":
		return event.ClassTemporal
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit", "vector",
		"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection",
		"geometrycollection":
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
	case "json":
		return event.ClassJSON
	}
	return event.ClassUnknown
}
