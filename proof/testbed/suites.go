package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// suitesPackages hold MariaDB's own test suites and the interpreter of their language.
const suitesPackages = "mariadb-test mariadb-test-data libpcre2-posix3"

// Suites are a database vendor's own test suites: thousands of tests, each of which does odd things to tables with the
// same few names. As a load they are worth more than anything that one thinks of oneself. Whether a test passes is of
// no interest: many compare output that depends on the server's settings, which mtr would choose for each.
type Suites struct {
	base    string   // the directory mysql-test
	main    string   // below it, the tests of the suite main
	runner  []string // how to call mysqltest
	env     []string
	plugins string
	scratch string
	// mysql says that the runner is MySQL's, which ends at the first statement that fails otherwise than the test
	// expects.
	mysql bool
}

// MariaDBSuites finds MariaDB's test suites on this machine, else in the cache directory, where they are unpacked to if
// need be. They run against MySQL as well. scratch is a directory for files that the tests write next to the server.
func MariaDBSuites(ctx context.Context, scratch string) (*Suites, error) {
	in := Options{}.installer()
	root, err := in.suites(ctx)
	if err != nil {
		return nil, err
	}
	s := &Suites{
		base: root + "/usr/share/mysql/mysql-test", main: "main", plugins: root + "/usr/lib/mysql/plugin", scratch: scratch,
		runner: []string{root + "/usr/bin/mysqltest", "--no-defaults", "--continue-on-error"},
	}
	if libs, _ := filepath.Glob(root + "/usr/lib/*/libpcre2-posix.so.*"); len(libs) > 0 {
		s.env = append(s.env, "LD_LIBRARY_PATH="+filepath.Dir(libs[0]))
	}
	return s, s.scratches()
}

// scratches makes the directories that tests write to.
func (s *Suites) scratches() error {
	for _, dir := range []string{"tmp", "log"} {
		if err := os.MkdirAll(filepath.Join(s.scratch, dir), 0o755); err != nil {
			return fmt.Errorf("testbed: test suites: %w", err)
		}
	}
	return nil
}

// suites returns the directory below which the test suites stand as they would below /.
func (in *installer) suites(ctx context.Context) (string, error) {
	complete := func(root string) bool {
		_, err := os.Stat(root + "/usr/bin/mysqltest")
		return err == nil && isDir(root+"/usr/share/mysql/mysql-test/main")
	}
	if complete("") {
		return "", nil
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "mariadb-test")
	return dir, in.ensure(ctx, need{
		what:    "MariaDB's test suites (apt-get download " + suitesPackages + ", into " + dir + ")",
		present: func() bool { return complete(dir) },
		can:     canInstall,
		install: func(ctx context.Context) error { return in.unpack(ctx, dir, strings.Fields(suitesPackages)...) },
		missing: func(why error) error {
			return fmt.Errorf("testbed: MariaDB's test suites are missing and cannot be installed (%w): install mysqltest "+
				"into /usr/bin, "+
				"and the tests into /usr/share/mysql/mysql-test", why)
		},
	})
}

// Plugins is the directory of the plugins that some of the tests need, for the server's --plugin-dir; "": MySQL's need
// none.
func (s *Suites) Plugins() string { return s.plugins }

// Tests returns the names of the tests in a suite, in order: main.type_set, gcol.gcol_keys_innodb.
func (s *Suites) Tests(suite string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(s.File(suite+".x")), "*.test"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("testbed: suite %s has no tests: %v", suite, err)
	}
	for i, f := range files {
		files[i] = suite + "." + strings.TrimSuffix(filepath.Base(f), ".test")
	}
	return files, nil
}

// File returns the path of a test.
func (s *Suites) File(test string) string {
	suite, name, _ := strings.Cut(test, ".")
	if suite == "main" {
		return filepath.Join(s.base, s.main, name+".test")
	}
	return filepath.Join(s.base, "suite", suite, "t", name+".test")
}

var sources = regexp.MustCompile(`(?im)^\s*(?:--\s*)?source\s+([^\s;$]+)`)

// Sourced returns what the files say that a test sources, and those that these source. It leaves out what it does not
// find, such as names that are made as the test runs.
func (s *Suites) Sourced(test string) ([]byte, error) {
	file := s.File(test)
	own, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	var all []byte
	seen := map[string]bool{}
	var read func(text []byte)
	read = func(text []byte) {
		for _, m := range sources.FindAllSubmatch(text, -1) {
			name := string(m[1])
			if seen[name] {
				continue
			}
			seen[name] = true
			for _, dir := range []string{s.base, filepath.Dir(file), filepath.Dir(filepath.Dir(file))} {
				if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
					all = append(all, text...)
					read(text)
					break
				}
			}
		}
	}
	read(own)
	return all, nil
}

// Command is the run of one test against a server, in its database test. It continues after statements that fail.
func (s *Suites) Command(ctx context.Context, server *Server, test string) (*exec.Cmd, error) {
	file := s.File(test)
	if s.mysql {
		var err error
		if file, err = s.goingOn(file); err != nil {
			return nil, err
		}
	}
	argv := append(slices.Clone(s.runner), "--user="+server.User, "--socket="+server.Socket,
		"--database=test", "--basedir="+s.base+"/", "--tmpdir="+s.scratch+"/tmp", "--logdir="+s.scratch+"/log",
		"--test-file="+file)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = s.base
	// What mtr gives its tests: BIG_TEST lets those run that take long.
	cmd.Env = append(append(os.Environ(), s.env...), "MYSQL_TEST_DIR="+s.base, "MYSQLTEST_VARDIR="+s.scratch,
		"MYSQL_TMP_DIR="+s.scratch+"/tmp",
		"MASTER_MYSOCK="+server.Socket, "MASTER_MYPORT="+strconv.Itoa(server.Port), "BIG_TEST=1",
		"TEST_VERSIONING_SO=test_versioning.so", "TZ=GMT-3", "LC_ALL=C",
		"MYSQLD_DATADIR="+filepath.Join(server.Dir, "data"))
	return cmd, nil
}
