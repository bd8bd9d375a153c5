package suites

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// patience is how long freshet may take to read what one test of a suite has written.
	patience = 2 * time.Minute
	// perTest is how long one test of a suite may take. One that hangs is ended, and was load all the same.
	perTest = 20 * time.Second
)

func soak() bool { return os.Getenv("FRESHET_SOAK") != "" }

// biting are tests that once made freshet end, grow, or stand still, and some of each kind of table beside them.
var biting = []string{
	"main.type_enum", "main.type_set", "main.null", "main.type_bit", "main.type_decimal",
	"gcol.gcol_keys_innodb", "gcol.gcol_ins_upd_innodb", "vcol.vcol_misc",
	"parts.partition_int_innodb", "parts.partition_exch_qa_10", "parts.alter_data_directory_innodb", "versioning.update", "json.json_table",
}

// A test of the vendor's that resets, purges or turns off the binlog, or the server, is none for somebody who reads it.
var unfit = regexp.MustCompile(`(?i)reset\s+master|purge\s+(binary|master)\s+logs|sql_log_bin|log_bin|shutdown|restart|kill_mysqld|crash|mysqldump|upgrade|rpl_|gtid|set\s+global\s+(server_id|read_only|max_connections)`)

// only limits a soak to some tests: FRESHET_SUITES=^main.type_ names those with a regular expression.
var only = regexp.MustCompile(os.Getenv("FRESHET_SUITES"))

// tests returns the tests of a suite that are fit.
func tests(t *testing.T, s *testbed.Suites, suite string) (all []string) {
	t.Helper()
	names, err := s.Tests(suite)
	testbed.Must(t, err)
	for _, name := range names {
		text, err := os.ReadFile(s.File(name))
		testbed.Must(t, err)
		if !unfit.MatchString(name) && !unfit.Match(text) && only.MatchString(name) {
			all = append(all, name)
		}
	}
	return all
}

// server starts a MariaDB on which the vendor's tests can run.
func server(t *testing.T, s *testbed.Suites, args ...string) *testbed.Server {
	t.Helper()
	return testbed.MariaDB(t, append([]string{
		"--plugin-dir=" + s.Plugins(), "--plugin-maturity=unknown", "--plugin-load-add=test_versioning",
		"--innodb-flush-log-at-trx-commit=0", "--log-bin-trust-function-creators=1", "--max-statement-time=10", "--lock-wait-timeout=5",
	}, args...)...)
}

// play runs one test of a suite, and cleans up behind it. Its verdict is of no interest.
func play(t *testing.T, s *testbed.Suites, source *testbed.Server, test string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), perTest)
	defer cancel()
	out, err := s.Command(ctx, source, test).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", test, err)
	}
	last := out[strings.LastIndexByte(strings.TrimSpace(string(out)), '\n')+1:]
	t.Logf("%s: %d lines, %.80s", test, strings.Count(string(out), "\n"), last)
	testbed.Must(t, source.Start(t.Context())) // if the test has ended it
	clean(t, source)
}

// clean drops what a test left, and takes back what it set.
func clean(t *testing.T, source *testbed.Server) {
	t.Helper()
	for _, id := range list(t, source, "SELECT id FROM information_schema.processlist WHERE user = 'root' AND command NOT LIKE 'Binlog%' AND id <> CONNECTION_ID() AND db IS NOT NULL") {
		_ = source.ExecContext(t.Context(), "KILL HARD "+id) // it may be gone
	}
	for _, name := range list(t, source, "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema', 'mtr', 'suites')") {
		quoted := "`" + strings.ReplaceAll(name, "`", "``") + "`"
		if err := source.ExecContext(t.Context(), "DROP DATABASE IF EXISTS "+quoted); err != nil {
			// A file that the test has put there.
			testbed.Must(t, os.RemoveAll(filepath.Join(source.Dir, "data", name)))
		}
	}
	source.Exec(t, "CREATE DATABASE test", "SET GLOBAL binlog_format = ROW", "SET GLOBAL binlog_row_image = FULL", "SET GLOBAL time_zone = SYSTEM",
		"SET GLOBAL sql_mode = DEFAULT", "SET GLOBAL read_only = 0")
}

func list(t *testing.T, source *testbed.Server, query string) []string {
	t.Helper()
	rows, err := source.DB().QueryContext(t.Context(), query)
	testbed.Must(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		testbed.Must(t, rows.Scan(&text))
		all = append(all, text)
	}
	testbed.Must(t, rows.Err())
	return all
}

// setting is what freshet reads the tests with: how much the binlog says of tables, and through which event log.
type setting struct{ metadata, log string }

func (s setting) String() string { return s.metadata + " metadata, " + s.log + " log" }

// The settings that each suite is read with. Another reader needs the first one's metadata.
var settings = []setting{{"FULL", "embedded"}, {"MINIMAL", "kafka"}, {"NO_LOG", "embedded"}}

// freshet reads through what the vendor tests its server with: it does not end, panic, stand still or grow. It deletes the
// keys that another reader finds in the same binlog, also where the binlog has less metadata than that reader needs.
func TestTheVendorsOwnTestsAreReadThrough(t *testing.T) {
	readThrough(t, "biting", biting)
	if !soak() {
		return
	}
	suites, err := testbed.MariaDBSuites(t.Context(), t.TempDir())
	testbed.Must(t, err)
	for _, name := range []string{"main", "gcol", "vcol", "versioning", "parts", "json"} {
		readThrough(t, name, tests(t, suites, name))
	}
}

// readThrough reads tests with all settings.
func readThrough(t *testing.T, name string, run []string) {
	readings := make([]reading, len(settings))
	t.Run(name, func(t *testing.T) {
		for i, s := range settings {
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()
				readings[i] = read(t, run, s)
			})
		}
	})
	full, keys := readings[0].expected, 0
	for _, test := range run {
		keys += len(full[test])
	}
	t.Logf("%s: %d keys", name, keys)
	if keys < 500 && name == "biting" && full != nil && !t.Failed() {
		t.Errorf("another reader found only %d keys: it proves little", keys)
	}
	for i, less := range readings {
		if less.deleted == nil || full == nil {
			continue // it failed, or was not asked for
		}
		for _, test := range run {
			// A table that was gone when freshet looked, and whose columns nothing tells then, is in doubt: it says so.
			if missing := without(full[test], less.deleted[test]); len(missing) > 0 && !less.doubted[test] {
				t.Errorf("%s with %s: these keys were not deleted: %q", test, settings[i], missing)
			}
		}
	}
}

// reading is what became of each test of a suite.
type reading struct {
	expected map[string][]string        // keys found by another reader
	deleted  map[string]map[string]bool // keys deleted by freshet
	doubted  map[string]bool            // whether rows could not be read
}

// read has freshet read through tests, one after the other.
func read(t *testing.T, run []string, with setting) reading {
	t.Helper()
	suites, err := testbed.MariaDBSuites(t.Context(), t.TempDir())
	testbed.Must(t, err)
	source := server(t, suites, "--binlog-row-metadata="+with.metadata)
	f := attach(t, source, with.log)
	f.survived("the start")
	r := reading{deleted: map[string]map[string]bool{}, doubted: map[string]bool{}}
	if with.metadata == "FULL" {
		r.expected = map[string][]string{}
	}
	for _, test := range run {
		f.resp.Forget()
		from, doubts := end(t, source), f.undecodable()
		play(t, suites, source, test)
		f.survived(test)
		f.finish(test)
		r.deleted[test], r.doubted[test] = f.deleted(), f.undecodable() != doubts
		if r.expected != nil {
			r.expected[test] = expected(t, source, from, end(t, source))
		}
	}
	t.Logf("at most %d MiB resident; alarms: %v\n%s", f.resident()>>20, f.alarms(), f.undecodable())
	return r
}
