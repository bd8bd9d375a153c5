package testbed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// It has the programs of this machine under other names, and its data directory is made by them as well.
func TestAServerThatIsNamedIsTheOneThatStarts(t *testing.T) {
	home := t.TempDir()
	link(t, running(t, testbed.MariaDB(t).Process), filepath.Join(home, "bin/mariadbd"))
	link(t, running(t, testbed.Redis(t).Process), filepath.Join(home, "bin/valkey-server"))
	link(t, "/usr/share/mysql", filepath.Join(home, "share/mysql"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(testbed.EnvMariaDBHome, home)
	t.Setenv(testbed.EnvRedisHome, home)
	db, rdb := testbed.MariaDB(t), testbed.Redis(t)
	if got := db.QueryText(t, "select @@basedir"); strings.TrimSuffix(got, "/") != home {
		t.Errorf("mariadbd has the basedir %s, want %s", got, home)
	}
	db.Exec(t, "create database a", "create table a.t (id int primary key, e enum('x'))", "insert into a.t values (1, 'x')")
	if info := rdb.Client().Info(t.Context(), "server").Val(); !strings.Contains(info, "executable:"+home) {
		t.Errorf("Redis runs from elsewhere than %s:\n%s", home, info)
	}
}

// A version that was named and is not there is not replaced by the one that is.
func TestAServerThatIsNamedAndMissingIsAnError(t *testing.T) {
	home := t.TempDir()
	for _, variable := range []string{testbed.EnvMySQLHome, testbed.EnvMariaDBHome, testbed.EnvRedisHome} {
		t.Setenv(variable, home)
	}
	_, mysqlErr := testbed.StartMySQL(t.Context(), testbed.Options{})
	_, mariadbErr := testbed.StartMariaDB(t.Context(), testbed.Options{})
	_, redisErr := testbed.StartRedis(t.Context(), testbed.Options{})
	for variable, err := range map[string]error{
		testbed.EnvMySQLHome: mysqlErr, testbed.EnvMariaDBHome: mariadbErr, testbed.EnvRedisHome: redisErr,
	} {
		if err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), home) {
			t.Errorf("%s leads to %v, want an error that names it and the directory", variable, err)
		}
	}
}

// running returns the program of a server.
func running(t *testing.T, p *testbed.Process) string {
	t.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.Pid()))
	testbed.Must(t, err)
	return path
}

func link(t *testing.T, to, from string) {
	t.Helper()
	testbed.Must(t, os.MkdirAll(filepath.Dir(from), 0o755))
	testbed.Must(t, os.Symlink(to, from))
}
