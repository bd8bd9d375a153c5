package suites

import (
	"context"
	"errors"
	"fmt"
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

// tests returns what runs: of the suites given, a few tests or, in a soak, all that are fit.
func tests(t *testing.T, s *testbed.Suites, suites ...string) []string {
	t.Helper()
	var all []string
	for _, suite := range suites {
		names, err := s.Tests(suite)
		testbed.Must(t, err)
		for _, name := range names {
			text, err := os.ReadFile(s.File(name))
			testbed.Must(t, err)
			if !unfit.MatchString(name) && !unfit.Match(text) {
				all = append(all, name)
			}
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

// freshet reads through what the vendor tests its server with: it does not end, panic, stand still or grow.
func TestTheVendorsOwnTestsAreReadThrough(t *testing.T) {
	suites, err := testbed.MariaDBSuites(t.Context(), t.TempDir())
	testbed.Must(t, err)
	runs := map[string][]string{"biting": biting}
	if soak() {
		runs = map[string][]string{}
		for _, name := range []string{"main", "gcol", "vcol", "versioning", "parts", "json"} {
			runs[name] = tests(t, suites, name)
		}
	}
	for name, run := range runs {
		for _, metadata := range []string{"MINIMAL", "FULL", "NO_LOG"}[:cut(2, 3)] {
			t.Run(fmt.Sprintf("%s with %s metadata", name, metadata), func(t *testing.T) {
				t.Parallel()
				suites, err := testbed.MariaDBSuites(t.Context(), t.TempDir())
				testbed.Must(t, err)
				source := server(t, suites, "--binlog-row-metadata="+metadata)
				f := attach(t, source)
				f.survived("the start")
				for _, test := range run {
					play(t, suites, source, test)
					f.survived(test)
				}
				t.Logf("at most %d MiB resident; alarms: %v\n%s", f.resident()>>20, f.alarms(), f.undecodable())
			})
		}
	}
}

func cut(short, whole int) int {
	if soak() {
		return whole
	}
	return short
}
