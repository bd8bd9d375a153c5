package suites

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }

const (
	// patience is how long freshet may take to read what one test of a suite has written.
	patience = 10 * time.Minute
	// perTest is how long one test of a suite may take. One that hangs is ended, and was load all the same.
	perTest = 2 * time.Minute
	// perServer is how many tests of a whole suite run on one server: then what was read is compared.
	perServer = 25
)

// load is tests that run against a server.
type load struct {
	name string
	// open finds the tests, and start starts a server on which they can run.
	open  func(ctx context.Context, scratch string) (*testbed.Suites, error)
	start func(t *testing.T, s *testbed.Suites, args ...string) *testbed.Server
	// metadata is how much the binlog says of tables, one after the other. Another reader needs the first; a cut ends
	// with the second.
	metadata []string
	// biting are tests that once made freshet end, grow, or stand still, and some of each kind of table next to them.
	biting []string
	// atLeast is how many keys another reader finds in them: less would prove little.
	atLeast int
	// suites are what a soak runs whole.
	suites []string
}

var loads = []load{
	{
		name: "MariaDB", open: testbed.MariaDBSuites, start: mariaDB,
		metadata: []string{"FULL", "NO_LOG", "MINIMAL"},
		biting: []string{
			"main.type_enum", "main.type_set", "main.null", "main.type_bit", "main.type_decimal",
			"gcol.gcol_keys_innodb", "gcol.gcol_ins_upd_innodb", "vcol.vcol_misc",
			"parts.partition_int_innodb", "parts.partition_exch_qa_10", "parts.alter_data_directory_innodb", "versioning.update",
			"json.json_table",
		},
		atLeast: 500,
		suites:  []string{"main", "gcol", "vcol", "versioning", "parts", "json"},
	},
	{
		// What MariaDB's vendor tests, as far as both have the same SQL.
		name: "MariaDB against MySQL", open: testbed.MariaDBSuites, start: mySQL,
		metadata: []string{"FULL", "MINIMAL"},
		biting:   []string{"main.type_enum", "gcol.gcol_ins_upd_innodb"},
		atLeast:  50,
	},
	{
		name: "MySQL", open: testbed.MySQLSuites, start: mySQL,
		metadata: []string{"FULL", "MINIMAL"},
		suites:   []string{"main", "gcol", "parts", "json", "engines/iuds"},
	},
}

func mariaDB(t *testing.T, s *testbed.Suites, args ...string) *testbed.Server {
	t.Helper()
	return testbed.MariaDB(t, append(args, "--plugin-dir="+s.Plugins(), "--plugin-maturity=unknown",
		"--plugin-load-add=test_versioning",
		"--innodb-flush-log-at-trx-commit=0", "--log-bin-trust-function-creators=1", "--lock-wait-timeout=5",
		"--innodb-lock-wait-timeout=5",
		"--max-statement-time=10")...)
}

func mySQL(t *testing.T, _ *testbed.Suites, args ...string) *testbed.Server {
	t.Helper()
	return testbed.MySQL(t, append(args, "--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0",
		"--log-bin-trust-function-creators=1", "--lock-wait-timeout=5",
		"--innodb-lock-wait-timeout=5", "--max-execution-time=10000")...)
}

// A test of the vendor's that resets, purges or turns off the binlog, or the server, is none for somebody who reads it.
var unfit = regexp.MustCompile(`(?i)reset\s+(master|binary)|purge\s+(binary|master)\s+logs|sql_log_bin|log_bin|shutdown|restart|kill_mysqld|crash|mysqldump|upgrade|rpl_|gtid|set\s+global\s+(server_id|read_only|max_connections)`)

// unfitSource is what such a test says in a file that it sources.
var unfitSource = regexp.MustCompile(`(?i)reset\s+(master|binary)|purge\s+(binary|master)\s+logs|gtid_mode\s*=`)

// history is what a test says that inserts rows into the past of a table: they are logged like others, and never were
// there for anybody to cache.
var history = regexp.MustCompile(`(?i)system_versioning_insert_history`)

// only limits a soak to some tests: FRESHET_SUITES=^main.type_ names those with a regular expression.
var only = regexp.MustCompile(os.Getenv("FRESHET_SUITES"))

// tests returns the tests of a suite that are fit, and that no earlier soak has run.
func (l *load) tests(t *testing.T, s *testbed.Suites, suite string) (all []string) {
	t.Helper()
	names, err := s.Tests(suite)
	testbed.Must(t, err)
	done := l.done(t)
	for _, name := range names {
		text, err := os.ReadFile(s.File(name))
		testbed.Must(t, err)
		sourced, err := s.Sourced(name)
		testbed.Must(t, err)
		switch {
		case done[name], !only.MatchString(name):
		case unfit.MatchString(name), unfit.Match(text), unfitSource.Match(sourced):
		default:
			all = append(all, name)
		}
	}
	return all
}

// journal is the file that FRESHET_SUITES_DONE names, if it does. It has a line for each test that was compared: load,
// test, metadata, how many keys were compared, and what came of it, with tabs between.
var journal = os.Getenv("FRESHET_SUITES_DONE")

// done returns the load's tests that the journal has.
func (l *load) done(t *testing.T) map[string]bool {
	t.Helper()
	if journal == "" {
		return nil
	}
	text, err := os.ReadFile(journal)
	if !errors.Is(err, fs.ErrNotExist) {
		testbed.Must(t, err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Split(line, "\t"); words[0] == l.name && len(words) > 1 {
			all[words[1]] = true
		}
	}
	return all
}

// note adds a line to the journal.
func (l *load) note(t *testing.T, test, metadata string, keys int, result string) {
	t.Helper()
	if journal == "" {
		return
	}
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	testbed.Must(t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s\t%s\t%s\t%d\t%s\n", l.name, test, metadata, keys, result)
	testbed.Must(t, err)
}

// play runs one test of a suite, and cleans up after it. Its verdict is of no interest. It reports whether the test had
// the time that it needs.
func play(t *testing.T, s *testbed.Suites, source *testbed.Server, test string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), perTest)
	defer cancel()
	began := time.Now()
	cmd, err := s.Command(ctx, source, test)
	testbed.Must(t, err)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", test, err)
	}
	last := out[strings.LastIndexByte(strings.TrimSpace(string(out)), '\n')+1:]
	t.Logf("%s: %d lines in %s, %.80s", test, strings.Count(string(out), "\n"), time.Since(began).Round(time.Millisecond),
		last)
	testbed.Must(t, source.Start(t.Context())) // if the test has ended it
	clean(t, source)
	return ctx.Err() == nil
}

// leftFiles is the error of a DROP DATABASE that finds files which are none of the server's. Others must not be removed
// under it.
var leftFiles = regexp.MustCompile(`Error (1010|3679) `)

// clean drops what a test left, and takes back what it set.
func clean(t *testing.T, source *testbed.Server) {
	t.Helper()
	testbed.Eventually(t, patience, "the server ends what a test left running", func() bool {
		ids := list(t, source, "SELECT id FROM information_schema.processlist WHERE user = 'root' AND command NOT LIKE "+
			"'Binlog%' AND id <> CONNECTION_ID() AND db IS NOT NULL")
		for _, id := range ids {
			_ = source.ExecContext(t.Context(), "KILL "+id) // it may be gone
		}
		return len(ids) == 0
	})
	for _, name := range list(t, source,
		"SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema', 'mtr', 'suites')") {
		drop := "DROP DATABASE IF EXISTS `" + strings.ReplaceAll(name, "`", "``") + "`"
		err := source.ExecContext(t.Context(), drop)
		for again := 0; err != nil && !leftFiles.MatchString(err.Error()); again++ {
			if again == 10 { // each has waited for a lock
				t.Fatalf("%s: %v", drop, err)
			}
			err = source.ExecContext(t.Context(), drop)
		}
		if err == nil {
			continue
		}
		files, err := filepath.Glob(filepath.Join(source.Dir, "data", name, "*")) // that the test has put there
		testbed.Must(t, err)
		for _, file := range files {
			testbed.Must(t, os.RemoveAll(file))
		}
		if err := source.ExecContext(t.Context(), drop); err != nil {
			t.Logf("%s: %v", drop, err)
		}
	}
	if err := source.ExecContext(t.Context(), "CREATE DATABASE test"); err != nil {
		// A directory is left where the server could not remove what a test had put there.
		testbed.Must(t, os.RemoveAll(filepath.Join(source.Dir, "data", "test")))
		source.Exec(t, "CREATE DATABASE test")
	}
	source.Exec(t, "SET GLOBAL binlog_format = ROW", "SET GLOBAL binlog_row_image = FULL",
		"SET GLOBAL time_zone = SYSTEM",
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

// freshet reads through what the vendor tests its server with: it does not end, panic, stand still or grow. It deletes
// the keys that another reader finds in the same binlog, also where the binlog has less metadata than that reader
// needs, and through either event log.
func TestTheVendorsOwnTestsAreReadThrough(t *testing.T) {
	for _, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			if biting, atLeast := l.biting, l.atLeast; len(biting) > 0 {
				if !testbed.Soak() { // half of them, by chance, some of which have few keys
					biting, atLeast = slices.Clone(biting), atLeast/8
					testbed.Seeded(t).Shuffle(len(biting), func(i, j int) { biting[i], biting[j] = biting[j], biting[i] })
					biting = biting[:(len(biting)+1)/2]
				}
				l.readThrough(t, "biting", biting, atLeast)
			}
			if !testbed.Soak() {
				return
			}
			suites, err := l.open(t.Context(), t.TempDir())
			testbed.Must(t, err)
			for _, name := range l.suites {
				t.Run(name, func(t *testing.T) {
					for some := range slices.Chunk(l.tests(t, suites, name), perServer) {
						l.readThrough(t, "from "+some[0], some, 0)
					}
				})
			}
		})
	}
}

// readThrough reads tests with each kind of metadata.
func (l *load) readThrough(t *testing.T, name string, run []string, atLeast int) {
	metadata := l.metadata
	if !testbed.Soak() {
		metadata = metadata[:2]
	}
	readings := make([]*reading, len(metadata))
	t.Run(name, func(t *testing.T) {
		for i, metadata := range metadata {
			t.Run(metadata, func(t *testing.T) {
				t.Parallel()
				readings[i] = l.read(t, run, metadata)
			})
		}
	})
	full := readings[0]
	if full == nil {
		return // it failed, or was not asked for
	}
	keys := 0
	for _, test := range run {
		keys += len(full.found[test].keys)
	}
	t.Logf("%s: %d keys", name, keys)
	if keys < atLeast && !t.Failed() {
		t.Errorf("another reader found only %d keys: it proves little", keys)
	}
	for _, r := range readings {
		for _, test := range run {
			if r == nil {
				continue
			}
			if r != full && r.cut[test] {
				l.note(t, test, r.metadata, 0, "cut")
				continue
			}
			keys, result := r.compare(t, test, full.found[test].keys)
			l.note(t, test, r.metadata, keys, result)
		}
	}
}

// reading is what became of each test of a suite on one server.
type reading struct {
	metadata string
	freshets []*freshet // one for each event log
	found    map[string]*finding
	cut      map[string]bool // the test was ended before it was through
}

// read has freshet read through tests, one after the other.
func (l *load) read(t *testing.T, run []string, metadata string) *reading {
	t.Helper()
	suites, err := l.open(t.Context(), t.TempDir())
	testbed.Must(t, err)
	source := l.start(t, suites, "--binlog-row-metadata="+metadata)
	prepare(t, source)
	r := &reading{metadata: metadata, found: map[string]*finding{}, cut: map[string]bool{}}
	for _, log := range []string{"embedded", "kafka"} {
		r.freshets = append(r.freshets, attach(t, source, log))
	}
	largest := 0
	for n, test := range append([]string{"the start"}, run...) {
		for _, f := range r.freshets {
			f.resp.Forget()
		}
		from := end(t, source)
		if n > 0 {
			r.cut[test] = !play(t, suites, source, test)
		}
		to := end(t, source)
		r.found[test] = find(t, source, from, to)
		if text, err := os.ReadFile(suites.File(test)); err == nil && history.Match(text) {
			clear(r.found[test].keys)
		}
		largest = max(largest, r.found[test].largest)
		source.Exec(t, fmt.Sprintf("REPLACE INTO suites.done VALUES (%d)", n))
		for _, f := range r.freshets {
			f.survived(test, n, largest)
			if len(r.found[test].values) > 0 {
				f.finish(test)
			}
			f.note(test)
		}
	}
	for _, f := range r.freshets {
		t.Logf("%s log: at most %d MiB resident; alarms: %v", f.log, f.resident()>>20, f.alarms())
	}
	return r
}

// compare fails the test for keys of a test of a suite that another reader has found and freshet has not deleted, if
// one of their values was there on this server, too: what a test does may depend on the time. It returns how many were.
func (r *reading) compare(t *testing.T, test string, keys map[string][]string) (compared int, result string) {
	t.Helper()
	var there []string
	for key, values := range keys {
		if slices.ContainsFunc(values, func(value string) bool { return r.found[test].values[value] }) {
			there = append(there, key)
		}
	}
	result = "ok"
	for _, f := range r.freshets {
		o := f.of[test]
		missing := slices.DeleteFunc(slices.Clone(there), func(key string) bool { return o.deleted[key] })
		switch {
		case len(missing) == 0:
		case o.doubted: // a table that was gone when freshet looked, and whose columns nothing tells then
			result = "doubt"
		default:
			result = "missing"
			t.Errorf("%s with %s metadata, %s log: these keys were not deleted: %q", test, r.metadata, f.log, missing)
		}
	}
	return len(there), result
}
