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
	home    string   // the directory that its bin or sbin is in; "": as on this machine
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

// mysql finds MySQL: where the user names it, on PATH unless that is MariaDB's link, else in the sid directory.
func (in *installer) mysql(ctx context.Context) (*program, error) {
	p, err := named(ctx, EnvMySQLHome, "mysqld", "mysqld")
	if p == nil && err == nil {
		p = mysqlOnPath(ctx)
	}
	if p == nil && err == nil {
		var root string
		if root, err = in.sidDir(ctx, "mysqld", EnvMySQL); err == nil {
			p, err = programIn(ctx, root, "mysqld", "mysqld")
		}
	}
	if err != nil {
		return nil, err
	}
	if p.home != "" {
		p.args = databaseFiles(p.home)
	}
	p.initData = initMySQL
	return p, nil
}

// mysqlOnPath finds MySQL on PATH; nil: it is not there, or what has its name is MariaDB.
func mysqlOnPath(ctx context.Context) *program {
	path, ok := lookPath("mysqld")
	if !ok {
		return nil
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil || strings.Contains(string(out), "MariaDB") {
		return nil
	}
	return &program{name: "mysqld", argv: []string{path}, version: versionPattern.FindString(string(out))}
}

// sidDir returns the directory with Debian sid, and makes it first if need be.
func (in *installer) sidDir(ctx context.Context, name, variable string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "sid")
	return dir, in.ensure(ctx, need{
		what:    "MySQL, Redis 8 and Valkey (debootstrap of Debian sid with " + sidPackages + " into " + dir + ")",
		present: func() bool { return isDir(dir) },
		can:     canInstall,
		install: func(ctx context.Context) error { return in.sid(ctx, dir) },
		missing: missing(name, variable),
	})
}

// mariadb finds MariaDB: where the user names it, else on PATH, where it is installed if need be.
func (in *installer) mariadb(ctx context.Context) (*program, error) {
	if p, err := named(ctx, EnvMariaDBHome, "mariadbd", "mariadbd"); p != nil || err != nil {
		if err == nil {
			p.args, p.initData = databaseFiles(p.home), bootstrapMariaDB
		}
		return p, err
	}
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

// redis finds Redis or Valkey where the user names it, Redis on PATH, else redis-check-rdb, which is the same program
// and serves when it is called by the name redis-server.
func (in *installer) redis(ctx context.Context) (*program, error) {
	if p, err := named(ctx, EnvRedisHome, "redis-server", "redis-server", "valkey-server"); p != nil || err != nil {
		return p, err
	}
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
	return programIn(ctx, root, "redis-server", "redis-server")
}

// valkeyMajor is the first Valkey that moves slots of a cluster by itself.
const valkeyMajor = 9

// valkey finds a Valkey that moves slots of a cluster by itself: the one that the user names, else the one that comes
// with MySQL. What the user names may also be Redis, or an older Valkey: for these there are other tests.
func (in *installer) valkey(ctx context.Context) (*program, error) {
	p, err := named(ctx, EnvRedisHome, "redis-server", "redis-server", "valkey-server")
	if err != nil {
		return nil, err
	}
	if p != nil && filepath.Base(p.argv[len(p.argv)-1]) == "valkey-server" && atLeast(p.version, valkeyMajor) {
		return p, nil
	}
	root, err := in.sidDir(ctx, "valkey-server", EnvRedis)
	if err != nil {
		return nil, err
	}
	p, err = programIn(ctx, root, "valkey-server", "valkey-server")
	if err == nil && !atLeast(p.version, valkeyMajor) {
		err = fmt.Errorf("testbed: Valkey in %s is %s, and tests need %d.0: remove the directory, and Debian sid is "+
			"installed as it is today", root, p.version, valkeyMajor)
	}
	return p, err
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
