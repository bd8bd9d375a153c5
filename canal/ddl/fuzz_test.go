package ddl

import (
	"testing"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/event"
)

// FuzzParse looks for panics, endless loops and answers that contradict themselves.
func FuzzParse(f *testing.F) {
	for _, sql := range []string{
		"BEGIN", "XA START X'61',X'62',1", "SET STATEMENT a=1 FOR DELETE a FROM a JOIN (b, c)",
		"/*!50100 ALTER TABLE `a`.`b` ADD COLUMN IF NOT EXISTS (c ENUM('a''b', '\\''), d INT(5) ZEROFILL) */",
		"CREATE TABLE t (a VARCHAR(10) CHARACTER SET latin1 COLLATE x, PRIMARY KEY (a)) ENGINE=x PARTITION BY HASH(a)",
		"RENAME TABLE a TO b, c TO d", "UPDATE {OJ a JOIN b ON (1)} SET x=1",
		"ALTER TABLE t CONVERT TO CHARSET x, RENAME TO u",
		"ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "CREATE TABLE a (LIKE b)", "LOAD DATA INFILE 'x' INTO TABLE t",
	} {
		f.Add([]byte(sql), uint64(0), false, "")
		f.Add([]byte(sql), uint64(modeAnsiQuotes|modeNoBackslashEscapes|modeMSSQL), true, "gbk")
	}
	f.Fuzz(func(t *testing.T, sql []byte, mode uint64, mariaDB bool, name string) {
		s := &Session{Schema: []byte("d"), SQLMode: mode, MariaDB: mariaDB}
		s.Charset, _ = charset.Find(name, event.MySQL)
		st := Parse(sql, s)
		if st.Verb == Unknown && !st.Unclear {
			t.Fatal("unknown, yet clear")
		}
		if st.Verb == DML && !st.Unclear && len(st.Actions) == 0 {
			t.Fatal("writes nothing")
		}
		for _, a := range st.Actions {
			if a.Table.Schema == "" && a.Table.Table == "" && !st.Unclear {
				t.Fatalf("%s of no table", a.Op)
			}
			if (a.Op == OpAlter) != (a.Alter != nil) {
				t.Fatalf("%s, alter %v", a.Op, a.Alter)
			}
			if a.Create == nil {
				continue
			}
			for _, c := range a.Create.Columns {
				again, ok := ParseType(c.Type.String(), mariaDB)
				if c.Type.Base != "" && (!ok || again.String() != c.Type.String()) {
					t.Fatalf("type %q is read back as %q", c.Type, again)
				}
			}
		}
	})
}
