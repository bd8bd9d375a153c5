package schema

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/proof/testbed"
)

// TestServersAnswer asks real servers what a loader asks, with and without the right to see a table.
func TestServersAnswer(t *testing.T) {
	for _, s := range servers {
		t.Run(string(s.flavor), func(t *testing.T) {
			t.Parallel()
			server := s.start(t, "--sync-binlog=0", "--tmpdir="+t.TempDir())
			server.Exec(t, "CREATE DATABASE shop CHARACTER SET gbk",
				"CREATE TABLE shop.a (id INT, `sélect` VARCHAR(20), e ENUM('ü','b\\\\c'))",
				"CREATE VIEW shop.b AS SELECT 1 AS x", "CREATE USER u@'%' IDENTIFIED BY ''",
				"GRANT REPLICATION CLIENT ON *.* TO u@'%'")
			conn := connect(t, server)
			list, err := LoadCollations(t.Context(), conn)
			testbed.Must(t, err)
			c := charset.NewCollations(list)
			if got, ok := c.ByID(28); !ok || got.Charset != "gbk" || len(list) < 200 {
				t.Errorf("collation 28 is %v, of %d", got, len(list))
			}

			f := &fakeSource{mariaDB: s.mariaDB}
			l, err := newLoader(t.Context(), conn)
			testbed.Must(t, err)
			end, err := l.end()
			testbed.Must(t, err)
			tr := tracker(t, f)
			m := tableMap("a", long, varchar, long)
			m.Columns[1].Meta = 40 // varchar(20) in gbk
			m.Columns[2].Type, m.Columns[2].Meta = 247, 1
			d, err := tr.Resolve(t.Context(), conn, f, end, m)
			testbed.Must(t, err)
			if got := names(d); got != "id sélect e" {
				t.Errorf("columns %s", got)
			}
			if cs := d.Columns[1].Charset; cs == nil || cs.Name() != "gbk" {
				t.Errorf("character set %v", cs)
			}
			if got := strings.Join(d.Columns[2].Labels, " "); got != `ü b\c` {
				t.Errorf("labels %s", got)
			}
			if cs := tr.charsetOf("shop").charset; cs != "gbk" {
				t.Errorf("the schema's character set is %q", cs)
			}

			blind, err := client.Connect(server.Addr, "u", "", "")
			testbed.Must(t, err)
			defer blind.Close()
			_, err = tracker(t, f).Resolve(t.Context(), blind, f, end, m)
			if !errors.Is(err, ErrUnknownSchema) || !strings.Contains(err.Error(), "GRANT SELECT ON `shop`.`a`") {
				t.Errorf("without rights: %v", err)
			}
		})
	}
}
