package canal

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/proof/testbed/replay"
)

// probe asks a server of a version about itself.
func probe(t *testing.T, version string, o replay.Options) (*SourceInfo, error) {
	return Probe(t.Context(), Options{
		Source: "shop", Servers: NewServers(replay.Start(t, replay.Nothing(version), o).Addr), User: replay.User,
		Password: credential.Text(replay.Password),
	})
}

// What speaks MySQL's protocol and has no binlog for us says which product it is, instead of some question failing.
func TestProductsThatCannotBeReadAreNamed(t *testing.T) {
	for _, c := range []struct{ version, comment, want string }{
		{"8.0.11-TiDB-v7.5.0", "TiDB Server", "is TiDB, version 8.0.11-TiDB-v7.5.0, which freshet cannot read"},
		{"8.0.30-Vitess", "Version: 19.0.0", "is Vitess (or PlanetScale)"},
		{"5.7.32-singlestore", "", "is SingleStore"},
		{"8.0.34", "(ProxySQL)", "is ProxySQL, which passes on no binlog"},
	} {
		_, err := probe(t, c.version, replay.Options{Comment: c.comment})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.version, err, c.want)
		}
	}
}

func TestWhoRunsTheServerIsKnown(t *testing.T) {
	for _, c := range []struct {
		version   string
		variables map[string]string
		want      Service
	}{
		{"8.0.34", map[string]string{"basedir": "/usr/"}, ""},
		{"8.0.34", map[string]string{"basedir": "/rdsdbbin/mysql-8.0.34.R1/"}, RDS},
		{"8.0.28", map[string]string{"aurora_version": "3.04.0", "basedir": "/rdsdbbin/oscar-8.0/"}, Aurora},
		{"8.0.31-google", nil, CloudSQL},
		{"8.0.34-azure", nil, Azure},
	} {
		info, err := probe(t, c.version, replay.Options{Variables: c.variables})
		if err != nil || info.Service != c.want {
			t.Errorf("%s %v: %+v, %v", c.version, c.variables, info, err)
		}
	}
}
