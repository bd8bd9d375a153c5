package testbed_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// databases are the two flavors, for tests that hold for both.
var databases = []struct {
	flavor testbed.Flavor
	start  func(testing.TB, ...string) *testbed.Server
}{
	{testbed.FlavorMySQL, testbed.MySQL},
	{testbed.FlavorMariaDB, testbed.MariaDB},
}

func TestDatabaseSurvivesStopKillAndPause(t *testing.T) {
	for _, d := range databases {
		t.Run(string(d.flavor), func(t *testing.T) {
			s := d.start(t)
			if s.Flavor != d.flavor {
				t.Fatalf("flavor %s, want %s", s.Flavor, d.flavor)
			}
			s.Exec(t, "create database a", "use a", "create table t (id int primary key)", "insert into t values (1)")
			pid := s.Pid()
			testbed.Must(t, s.Kill())
			if s.Pid() != 0 {
				t.Fatal("killed server has a pid")
			}
			testbed.Must(t, s.Start(t.Context()))
			if s.Pid() == pid || s.Pid() == 0 {
				t.Fatalf("pid %d after restart, %d before", s.Pid(), pid)
			}
			s.Exec(t, "insert into a.t values (2)")
			testbed.Must(t, s.Stop())
			testbed.Must(t, s.Start(t.Context()))
			if got := s.QueryText(t, "select count(*) from a.t"); got != "2" {
				t.Fatalf("%s rows after kill and stop, want 2", got)
			}
			testbed.Must(t, s.Pause())
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { done <- s.ExecContext(ctx, "insert into a.t values (3)") }()
			testbed.Must(t, s.Resume())
			testbed.Must(t, <-done)
		})
	}
}

func TestEachMySQLHasItsOwnUUID(t *testing.T) {
	a, b := testbed.MySQL(t), testbed.MySQL(t)
	const q = "select @@server_uuid"
	if ua, ub := a.QueryText(t, q), b.QueryText(t, q); ua == ub || ua == "" {
		t.Fatalf("server_uuid %q and %q", ua, ub)
	}
}

func TestArgumentsOverrideDefaults(t *testing.T) {
	s := testbed.MySQL(t, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-row-metadata=FULL")
	if got := s.QueryText(t, "select concat(@@gtid_mode, ' ', @@binlog_row_metadata)"); got != "OFF FULL" {
		t.Fatalf("got %s", got)
	}
}

func TestRedisRestartsEmptyAtTheSameAddress(t *testing.T) {
	s := testbed.Redis(t)
	s.Do(t, "set", "k", "v")
	testbed.Must(t, s.Kill())
	testbed.Must(t, s.Start(t.Context()))
	if n := s.Do(t, "exists", "k"); n != int64(0) {
		t.Fatalf("exists k: %v", n)
	}
	s.Do(t, "debug", "sleep", "0")
}

func TestRedis8(t *testing.T) {
	s := testbed.Redis8(t)
	if !strings.HasPrefix(s.Version, "8.") {
		t.Fatalf("version %s", s.Version)
	}
	s.Do(t, "hset", "h", "f", "v")
	s.Do(t, "hexpire", "h", "10", "fields", "1", "f") // new in 7.4
}

func TestValkey(t *testing.T) {
	s := testbed.Valkey(t)
	if n, err := strconv.Atoi(strings.Split(s.Version, ".")[0]); n < 9 || err != nil {
		t.Fatalf("version %s", s.Version)
	}
	if known := s.Do(t, "command", "info", "cluster|migrateslots").([]any); known[0] == nil {
		t.Error("it does not move slots by itself")
	}
}

func TestSharedServersAreThoseOfTheEnvironment(t *testing.T) {
	for _, d := range databases {
		own := d.start(t)
		own.Exec(t, "create user 'u'@'%' identified by 'p:w@d'", "grant all on *.* to 'u'@'%'")
		env, shared := testbed.EnvMySQL, testbed.SharedMySQL
		if d.flavor == testbed.FlavorMariaDB {
			env, shared = testbed.EnvMariaDB, testbed.SharedMariaDB
		}
		for _, address := range []string{own.Addr, "u:p:w@d@" + own.Addr} {
			t.Setenv(env, address)
			s := shared(t)
			if s.Addr != own.Addr || s.Version != own.Version {
				t.Fatalf("shared %s %s, want %s %s", s.Addr, s.Version, own.Addr, own.Version)
			}
			if s.QueryText(t, "select current_user()") == "" {
				t.Fatal("no user")
			}
			if s.Kill() == nil || s.Stop() == nil || s.Pause() == nil || s.Start(t.Context()) == nil {
				t.Fatal("a shared server could be stopped")
			}
		}
	}
	own := testbed.Redis(t)
	t.Setenv(testbed.EnvRedis, own.Addr)
	if s := testbed.SharedRedis(t); s.Addr != own.Addr || s.Version != own.Version || s.Kill() == nil {
		t.Fatalf("shared %+v", s)
	}
}
