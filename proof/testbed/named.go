package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The variables by which a user names another version of a server: the directory that it was unpacked or built in.
// That may be a system of its own, such as debootstrap makes, which needs no chroot. All private servers of that
// kind are then started from there. One that does not start fails the test: no other is looked for.
const (
	EnvMySQLHome   = "FRESHET_TEST_MYSQL_HOME"
	EnvMariaDBHome = "FRESHET_TEST_MARIADB_HOME"
	EnvRedisHome   = "FRESHET_TEST_REDIS_HOME"
)

// named finds a program in the directory that a variable names; nil: it names none.
func named(ctx context.Context, variable, name string, files ...string) (*program, error) {
	home := os.Getenv(variable)
	if home == "" {
		return nil, nil
	}
	home, err := filepath.Abs(home)
	if err != nil {
		return nil, fmt.Errorf("testbed: %s: %w", variable, err)
	}
	p, err := programIn(ctx, home, name, files...)
	if err != nil {
		return nil, fmt.Errorf("%w: see %s", err, variable)
	}
	return p, nil
}

// programIn finds a program, by any of its file names, in a directory that is laid out as / or as /usr is, or that
// holds the program itself. A system of its own is run by its own loader, with its own libraries: unlike chroot that
// needs neither root nor mounts, and the program sees this machine's files.
func programIn(ctx context.Context, home, name string, files ...string) (*program, error) {
	for _, dir := range []string{"usr/sbin", "usr/bin", "sbin", "bin", "libexec", "src", ""} {
		for _, file := range files {
			path := filepath.Join(home, dir, file)
			if _, err := exec.LookPath(path); err != nil {
				continue
			}
			argv := []string{path}
			if loader := systemLoader(home); loader != nil {
				// The program does not see by which link it was called: it goes by argv[0].
				argv = append(append(loader, "--argv0", name), path)
			}
			p, err := newProgram(ctx, name, argv, nil)
			if err == nil {
				p.home = filepath.Dir(filepath.Dir(path))
			}
			return p, err
		}
	}
	return nil, fmt.Errorf("testbed: no program %s in %s, nor in bin, sbin or usr below it", strings.Join(files, " or "),
		home)
}

// systemLoader is how a program of a system in a directory is called; nil: there is no system in it.
func systemLoader(root string) []string {
	loader, _ := filepath.Glob(root + "/usr/lib/*/ld-linux-*.so.*")
	if len(loader) == 0 {
		return nil
	}
	libs := filepath.Dir(loader[0])
	return []string{loader[0], "--library-path", libs + ":" + root + "/usr/lib/mysql/private"}
}

// databaseFiles are the options that say where a database server has its files, if it is not where it was built for.
func databaseFiles(home string) []string {
	args := []string{"--basedir=" + home}
	if share := shareDir(home); share != "" {
		args = append(args, "--lc-messages-dir="+share, "--character-sets-dir="+filepath.Join(share, "charsets"))
	}
	for _, pattern := range []string{"lib/mysql/plugin", "lib/*/mysql/plugin", "lib64/mysql/plugin", "lib/plugin"} {
		if dirs, _ := filepath.Glob(filepath.Join(home, pattern)); len(dirs) > 0 {
			return append(args, "--plugin-dir="+dirs[0])
		}
	}
	return args
}

// shareDir is where a database server has its messages and MariaDB the statements that make its system tables.
func shareDir(home string) string {
	for _, dir := range []string{"share/mariadb", "share/mysql", "share"} {
		if dir = filepath.Join(home, dir); isDir(filepath.Join(dir, "charsets")) {
			return dir
		}
	}
	return ""
}

// bootstrapMariaDB does what mariadb-install-db does, which finds the server by itself alone.
func bootstrapMariaDB(ctx context.Context, p *program, dir string) error {
	text := "create database if not exists mysql;\nuse mysql;\nset @auth_root_socket = null, @skip_auth_anonymous = 1;\n"
	for _, name := range []string{
		"*_system_tables", "*_performance_tables", "*_system_tables_data", "maria_add_gis_sp_bootstrap", "*_sys_schema",
	} {
		files, _ := filepath.Glob(filepath.Join(shareDir(p.home), name+".sql"))
		if len(files) == 0 {
			return fmt.Errorf("testbed: no %s.sql in the share directory of %s", name, p.home)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			return fmt.Errorf("testbed: data template: %w", err)
		}
		text += string(b) + "\n"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("testbed: data template: %w", err)
	}
	argv := append(append([]string{}, p.argv...), "--no-defaults", "--bootstrap", "--datadir="+dir, "--log-warnings=0",
		"--enforce-storage-engine=")
	argv = append(append(append(argv, p.args...), mariaDBSmall...), asUser()...)
	return initialise(ctx, argv, strings.NewReader(text))
}
