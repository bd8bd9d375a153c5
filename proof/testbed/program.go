package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// program is a server's program as found on this machine.
type program struct {
	name    string   // mysqld, mariadbd, redis-server
	argv    []string // how to call it, before any option
	args    []string // options that say where its files are
	version string   // as it says itself: 9.7.4, 10.11.19, 7.0.15

	// initData makes a new data directory; nil where none is needed.
	initData func(ctx context.Context, p *program, dir string) error
}

var versionPattern = regexp.MustCompile(`\d+\.\d+\.\d+`)

// newProgram asks the program for its version.
func newProgram(ctx context.Context, name string, argv, args []string) (*program, error) {
	cmd := append(append([]string{}, argv...), "--version")
	out, err := exec.CommandContext(ctx, cmd[0], cmd[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("testbed: %s --version: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return &program{name: name, argv: argv, args: args, version: versionPattern.FindString(string(out))}, nil
}

// lookPath finds a program on PATH and in the directories for servers, which the PATH of an
// ordinary user may lack.
func lookPath(name string) (string, bool) {
	if p, err := exec.LookPath(name); err == nil {
		return p, true
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, true
		}
	}
	return "", false
}

// missing makes the one line for somebody whose machine lacks a server.
func missing(program, variable string) func(why error) error {
	return func(why error) error {
		return fmt.Errorf("testbed: %s is missing and cannot be installed (%w): put %s on PATH, or set %s to the address "+
			"of a server (enough for tests which can share one)",
			program, why, program, variable)
	}
}

// mysql finds MySQL: on PATH, unless that is MariaDB's link; else in the sid directory.
func (in *installer) mysql(ctx context.Context) (*program, error) {
	if path, ok := lookPath("mysqld"); ok {
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err == nil && !strings.Contains(string(out), "MariaDB") {
			p, err := newProgram(ctx, "mysqld", []string{path}, nil)
			if err == nil {
				p.initData = initMySQL
			}
			return p, err
		}
	}
	root, err := in.sidDir(ctx, "mysqld", EnvMySQL)
	if err != nil {
		return nil, err
	}
	p, err := newProgram(ctx, "mysqld", append(sidLoader(root), root+"/usr/sbin/mysqld"), []string{
		"--basedir=" + root + "/usr",
		"--plugin-dir=" + root + "/usr/lib/mysql/plugin",
		"--lc-messages-dir=" + root + "/usr/share/mysql",
		"--character-sets-dir=" + root + "/usr/share/mysql/charsets",
	})
	if err == nil {
		p.initData = initMySQL
	}
	return p, err
}

// sidDir returns the directory with Debian sid, and makes it first if need be.
func (in *installer) sidDir(ctx context.Context, name, variable string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "sid-mysql")
	return dir, in.ensure(ctx, need{
		what:    "MySQL and Redis 8 (debootstrap of Debian sid with " + sidPackages + " into " + dir + ")",
		present: func() bool { return isDir(dir) },
		can:     canInstall,
		install: func(ctx context.Context) error { return in.sid(ctx, dir) },
		missing: missing(name, variable),
	})
}

// sidLoader calls a program in the sid directory with that system's own libraries. Unlike
// chroot it needs neither root nor mounts, and the program sees this machine's files.
func sidLoader(root string) []string {
	loader, _ := filepath.Glob(root + "/usr/lib/*/ld-linux-*.so.*")
	if len(loader) == 0 {
		return nil // then the program's own start says what is wrong
	}
	libs := filepath.Dir(loader[0])
	return []string{loader[0], "--library-path", libs + ":" + root + "/usr/lib/mysql/private"}
}

// mariadb finds MariaDB on PATH, where it is installed if need be.
func (in *installer) mariadb(ctx context.Context) (*program, error) {
	present := func() bool {
		_, server := lookPath("mariadbd")
		_, install := lookPath("mariadb-install-db")
		return server && install
	}
	if err := in.ensure(ctx, in.aptNeed("MariaDB", mariaDBPackages, present,
		missing("mariadbd", EnvMariaDB))); err != nil {
		return nil, err
	}
	path, ok := lookPath("mariadbd")
	if !ok || !present() {
		return nil, fmt.Errorf("testbed: the packages %s brought no mariadbd", mariaDBPackages)
	}
	p, err := newProgram(ctx, "mariadbd", []string{path}, nil)
	if err == nil {
		p.initData = initMariaDB
	}
	return p, err
}

// redis finds Redis on PATH, else redis-check-rdb, which is the same program and serves when
// it is called by the name redis-server.
func (in *installer) redis(ctx context.Context) (*program, error) {
	if path, ok := lookPath("redis-server"); ok {
		return newProgram(ctx, "redis-server", []string{path}, nil)
	}
	present := func() bool { _, ok := lookPath("redis-check-rdb"); return ok }
	if err := in.ensure(ctx, in.aptNeed("Redis", redisPackages, present, missing("redis-server", EnvRedis))); err != nil {
		return nil, err
	}
	target, ok := lookPath("redis-check-rdb")
	if !ok {
		return nil, fmt.Errorf("testbed: the package %s brought no redis-check-rdb", redisPackages)
	}
	link, err := redisLink(ctx, target)
	if err != nil {
		return nil, err
	}
	return newProgram(ctx, "redis-server", []string{link}, nil)
}

// redis8 finds Redis 8, which comes with MySQL.
func (in *installer) redis8(ctx context.Context) (*program, error) {
	root, err := in.sidDir(ctx, "redis-server 8", EnvRedis)
	if err != nil {
		return nil, err
	}
	// Called through the loader, the program does not see the name of the link: it goes by argv[0].
	loader := append(sidLoader(root), "--argv0", "redis-server")
	return newProgram(ctx, "redis-server", append(loader, root+"/usr/bin/redis-server"), nil)
}

// redisLink makes the link by whose name redis-check-rdb becomes the server.
func redisLink(ctx context.Context, target string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	link := filepath.Join(cache, "redis-server")
	if to, err := os.Readlink(link); err == nil && to == target {
		return link, nil
	}
	unlock, err := lockCache(ctx, "install")
	if err != nil {
		return "", err
	}
	defer unlock()
	_ = os.Remove(link)
	if err := os.Symlink(target, link); err != nil {
		return "", fmt.Errorf("testbed: redis-server: %w", err)
	}
	return link, nil
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
