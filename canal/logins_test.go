package canal

import (
	"crypto/tls"
	"testing"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/credential/credentialtest"
	"github.com/freshet/freshet/proof/testbed"
)

// TestLoginsOfMariaDB logs in by each plugin that the server has, with the stream and with questions: over TLS, and
// without. Many servers come without parsec, which there is from 11.6 on, or without ed25519.
func TestLoginsOfMariaDB(t *testing.T) {
	t.Parallel()
	s := testbed.MariaDB(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, s, "create table DB.t (id int primary key)")
	n := 0
	for plugin, soname := range map[string]string{
		"mysql_native_password": "", "ed25519": "auth_ed25519", "parsec": "auth_parsec",
	} {
		if soname != "" {
			if err := s.ExecContext(t.Context(), "install soname '"+soname+"'"); err != nil {
				t.Logf("MariaDB %s has no %s: %v", s.Version, plugin, err)
				continue
			}
		}
		d.exec("create user by_"+plugin+" identified via "+plugin+" using password('a secret')",
			"grant replication slave, binlog monitor on *.* to by_"+plugin, "grant select on DB.* to by_"+plugin)
		for _, secure := range []bool{false, true} {
			o := d.options()
			o.User = "by_" + plugin
			if secure {
				if s.QueryText(t, "select @@have_ssl") != "YES" {
					t.Logf("MariaDB %s offers no TLS", s.Version)
					continue
				}
				o.TLS = credentialtest.Fixed(&tls.Config{InsecureSkipVerify: true})
			}
			r := reading(t, newRecorder(), o)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			n++
			row := "insert into DB.t values (" + string(rune('0'+n)) + ")"
			d.exec(row)
			r.wantRows(d, "insert DB.t ("+string(rune('0'+n))+")")
			r.await(t, "a mark over it", func() bool { return r.marked(r.rows[0].version) })
			testbed.Must(t, r.stop())
			o.Password = credential.Text("another")
			if _, err := Inspect(t.Context(), o); err == nil {
				t.Errorf("%s: a wrong password is taken", plugin)
			}
			t.Logf("MariaDB %s: %s, over TLS %t", s.Version, plugin, secure)
		}
	}
}
