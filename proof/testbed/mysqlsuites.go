package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// suitesPackage holds MySQL's own test suites. It is a download of 340 MB, so [Install] leaves it out: who asks for it
// waits.
const suitesPackage = "mysql-testsuite"

// MySQLSuites finds MySQL's test suites in the cache directory, where they are unpacked to if need be, in the version
// of the MySQL that is there. scratch is a directory for what the tests write next to the server.
func MySQLSuites(ctx context.Context, scratch string) (*Suites, error) {
	in := Options{}.installer()
	root, err := in.sidDir(ctx, "mysqltest", EnvMySQL)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(filepath.Dir(root), suitesPackage)
	err = in.ensure(ctx, need{
		what:    "MySQL's test suites (apt-get download " + suitesPackage + " of Debian sid, 340 MB, into " + dir + ")",
		present: func() bool { return isDir(dir) },
		can:     canInstall,
		install: func(ctx context.Context) error {
			return in.unpackSid(ctx, root, dir, suitesPackage, "mysql-server-core")
		},
		missing: func(why error) error {
			return fmt.Errorf("testbed: MySQL's test suites are missing and cannot be installed: %w", why)
		},
	})
	if err != nil {
		return nil, err
	}
	base := dir + "/usr/lib/mysql-test"
	s := &Suites{
		base: base, main: "t", scratch: scratch, mysql: true,
		runner: append(systemLoader(root), base+"/bin/mysqltest", "--no-defaults"),
	}
	return s, s.scratches()
}

// unpackSid puts the files of a package of Debian sid into a directory, in the version that another one has in root.
func (in *installer) unpackSid(ctx context.Context, root, dir, name, like string) error {
	version, err := exec.CommandContext(ctx, "dpkg-query", "--admindir="+root+"/var/lib/dpkg", "--show",
		"--showformat=${Version}", like).Output()
	if err != nil {
		return fmt.Errorf("testbed: version of %s in %s: %w", like, root, err)
	}
	part := dir + ".part"
	for _, argv := range [][]string{
		{"rm", "-rf", part, root + "/download"},
		{"mkdir", "-p", part, root + "/download"},
		{"chroot", root, "apt-get", "-q", "-o", "Acquire::Check-Valid-Until=false", "update"},
		{"chroot", root, "sh", "-c", `cd /download && apt-get -q download "$0"`, name + "=" + string(version)},
		{"sh", "-c", `dpkg-deb --extract "$0"/*.deb "$1"`, root + "/download", part},
		{"rm", "-rf", root + "/download", root + "/var/lib/apt/lists", root + "/var/cache/apt"},
		{"mv", part, dir},
	} {
		if err := asRoot(ctx, argv[0], argv[1:]...); err != nil {
			return fmt.Errorf("%w\ntestbed: if Debian sid has %s %s no more, remove %s: both are then installed as they are "+
				"today", err, name, version, root)
		}
	}
	return nil
}

// expects is what a test says of the error of its next statement, by which MySQL's mysqltest ends where it is another.
var expects = regexp.MustCompile(`(?im)^\s*(--\s*)?error\s[^\n]*$`)

// goingOn writes a test that goes on after statements that fail, and returns its path. MariaDB's runner has an option
// for that.
func (s *Suites) goingOn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("testbed: %w", err)
	}
	to := filepath.Join(s.scratch, strings.TrimSuffix(filepath.Base(file), ".test")+"_going_on.test")
	text = append([]byte("--disable_abort_on_error\n"), bytes.TrimSpace(expects.ReplaceAll(text, nil))...)
	if err := os.WriteFile(to, append(text, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("testbed: %w", err)
	}
	return to, nil
}
