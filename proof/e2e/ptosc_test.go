package e2e

import (
	"fmt"
	"strings"

	"github.com/freshet/freshet/proof/testbed"
)

// copyWithTriggers returns what runs pt-online-schema-change with --alter, statement by statement, as version
// 3.5.7 does (bin/pt-online-schema-change): triggers write to the copy what clients write to the table, rows are
// copied in chunks, and then the copy takes the name.
func copyWithTriggers(alter string, columns ...string) func(*alteration) {
	return func(a *alteration) {
		a.t.Helper()
		name := a.table.name
		of, to, old := "`shop`.`"+name+"`", "`shop`.`_"+name+"_new`", "`shop`.`_"+name+"_old`"
		trigger := func(suffix string) string { return "`pt_osc_shop_" + name + "_" + suffix + "`" }
		var quoted, values []string
		for _, c := range columns {
			quoted, values = append(quoted, "`"+c+"`"), append(values, "NEW.`"+c+"`")
		}
		list := strings.Join(quoted, ", ")

		a.do("SET @@SQL_QUOTE_SHOW_CREATE = 1/*!40101, @@SQL_MODE='NO_AUTO_VALUE_ON_ZERO'*/")
		a.do("SET SESSION innodb_lock_wait_timeout=1, lock_wait_timeout=60")
		a.do(strings.Replace(a.showCreate(of), "CREATE TABLE `"+name+"` (", "CREATE TABLE "+to+" (", 1))
		a.touch()
		a.do("ALTER TABLE " + to + " " + alter)
		a.touch()
		handler := "FOR EACH ROW BEGIN DECLARE CONTINUE HANDLER FOR 1146 begin end; "
		a.do("CREATE TRIGGER " + schemaOf(trigger("del")) + " AFTER DELETE ON " + of + " " + handler +
			"DELETE IGNORE FROM " + to + " WHERE " + to + ".`id` <=> OLD.`id`; END ")
		a.do("CREATE TRIGGER " + schemaOf(trigger("upd")) + " AFTER UPDATE ON " + of + " " + handler +
			"DELETE IGNORE FROM " + to + " WHERE !(OLD.`id` <=> NEW.`id`) AND " + to + ".`id` <=> OLD.`id`; " +
			"REPLACE INTO " + to + " (" + list + ") VALUES (" + strings.Join(values, ", ") + "); END ")
		a.do("CREATE TRIGGER " + schemaOf(trigger("ins")) + " AFTER INSERT ON " + of + " " + handler +
			"REPLACE INTO " + to + " (" + list + ") VALUES (" + strings.Join(values, ", ") + ");END ")
		a.touch()
		for from := 0; from < modelRows; from += chunk {
			a.do(fmt.Sprintf("INSERT LOW_PRIORITY IGNORE INTO %s (%s) SELECT %s FROM %s FORCE INDEX(`PRIMARY`) "+
				"WHERE ((`id` >= '%d')) AND ((`id` <= '%d')) LOCK IN SHARE MODE /*pt-online-schema-change %d copy nibble*/",
				to, list, list, of, from, from+chunk, 4711))
			a.touch()
		}
		a.do("ANALYZE TABLE " + to + " /* pt-online-schema-change */")
		a.do("RENAME TABLE " + of + " TO " + old + ", " + to + " TO " + of)
		a.touch()
		a.do("DROP TABLE IF EXISTS " + old)
		for _, suffix := range []string{"del", "upd", "ins"} {
			a.do("DROP TRIGGER IF EXISTS " + schemaOf(trigger(suffix)))
		}
		a.do("SET SESSION innodb_lock_wait_timeout = DEFAULT, lock_wait_timeout = DEFAULT")
		a.touch()
	}
}

// schemaOf is a trigger's name with its schema.
func schemaOf(trigger string) string { return "`shop`." + trigger }

// showCreate returns the statement that makes a table.
func (a *alteration) showCreate(table string) string {
	a.t.Helper()
	var name, text string
	testbed.Must(a.t, a.conn.QueryRowContext(a.t.Context(), "SHOW CREATE TABLE "+table).Scan(&name, &text))
	return text
}
