package canal

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/server"

	"github.com/freshet/freshet/credential"
)

// posing is a server that says of itself what a test wants.
type posing struct {
	server.EmptyHandler
	version, comment string
	// variables are what SHOW GLOBAL VARIABLES shows.
	variables [][]any
}

// HandleQuery answers what [Probe] asks.
func (p *posing) HandleQuery(q string) (*mysql.Result, error) {
	var names []string
	var rows [][]any
	switch {
	case strings.HasPrefix(q, "SET "):
		return mysql.NewResult(nil), nil
	case q == "select @@version_comment limit 1":
		names, rows = []string{"c"}, [][]any{{p.comment}}
	case strings.HasPrefix(q, "SELECT VERSION()"):
		names, rows = []string{"v", "i", "b"}, [][]any{{p.version, "1", "0"}}
	case strings.HasPrefix(q, "SELECT @@server_uuid"):
		names, rows = []string{"u", "g"}, [][]any{{"3e11fa47-71ca-11e1-9e33-c80aa9429562", "OFF"}}
	case strings.HasPrefix(q, "SELECT @@global.gtid_owned"):
		names, rows = []string{"o", "e", "p"}, [][]any{{"", "", ""}}
	case strings.HasPrefix(q, "SHOW GLOBAL VARIABLES"):
		names, rows = []string{"n", "v"}, p.variables
	default:
		return nil, fmt.Errorf("nobody answers %q", q)
	}
	r, err := mysql.BuildSimpleTextResultset(names, rows)
	return mysql.NewResult(r), err
}

// start returns its address.
func (p *posing) start(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.NewServer(p.version, mysql.DEFAULT_COLLATION_ID, mysql.AUTH_NATIVE_PASSWORD, nil, nil)
	users := server.NewInMemoryAuthenticationHandler(mysql.AUTH_NATIVE_PASSWORD)
	if err := users.AddUser("freshet", "p"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				served, err := server.NewCustomizedConn(c, s, users, p)
				for err == nil && !served.Closed() {
					err = served.HandleCommand()
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

func (p *posing) probe(t *testing.T) (*SourceInfo, error) {
	return Probe(t.Context(), Options{
		Source: "shop", Servers: NewServers(p.start(t)), User: "freshet",
		Password: credential.Text("p"),
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
		_, err := (&posing{version: c.version, comment: c.comment}).probe(t)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.version, err, c.want)
		}
	}
}

func TestWhoRunsTheServerIsKnown(t *testing.T) {
	for _, c := range []struct {
		version   string
		variables [][]any
		want      Service
	}{
		{"8.0.34", [][]any{{"basedir", "/usr/"}}, ""},
		{"8.0.34", [][]any{{"basedir", "/rdsdbbin/mysql-8.0.34.R1/"}}, RDS},
		{"8.0.28", [][]any{{"aurora_version", "3.04.0"}, {"basedir", "/rdsdbbin/oscar-8.0/"}}, Aurora},
		{"8.0.31-google", nil, CloudSQL},
		{"8.0.34-azure", nil, Azure},
	} {
		info, err := (&posing{version: c.version, variables: c.variables}).probe(t)
		if err != nil || info.Service != c.want {
			t.Errorf("%s %v: %+v, %v", c.version, c.variables, info, err)
		}
	}
}
