package testbed

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// templateRevision changes whenever initialised data directories would come out differently.
const templateRevision = "1"

// rootOverTCP lets root in by 127.0.0.1 even where that name does not resolve to localhost.
const rootOverTCP = `CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
GRANT PROXY ON ''@'' TO 'root'@'127.0.0.1' WITH GRANT OPTION;
`

// dataTemplate returns an initialised data directory of the program, to be copied. It is made
// once for each version: initialising takes MySQL 3 s, copying a tenth of one.
func dataTemplate(ctx context.Context, p *program) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "data", p.name+"-"+p.version+"-"+templateRevision)
	if isDir(dir) {
		return dir, nil
	}
	unlock, err := lockCache(ctx, "data")
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(dir) {
		return dir, nil
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("testbed: data template: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(part), 0o755); err != nil {
		return "", fmt.Errorf("testbed: data template: %w", err)
	}
	if err := p.initData(ctx, p, part); err != nil {
		return "", err
	}
	// MySQL's server_uuid: each copy makes its own.
	if err := os.Remove(filepath.Join(part, "auto.cnf")); err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("testbed: data template: %w", err)
	}
	return dir, os.Rename(part, dir)
}

// initMySQL makes a MySQL data directory with a root user without password.
func initMySQL(ctx context.Context, p *program, dir string) error {
	initFile := dir + ".sql"
	if err := os.WriteFile(initFile, []byte(rootOverTCP), 0o644); err != nil {
		return fmt.Errorf("testbed: data template: %w", err)
	}
	defer os.Remove(initFile)
	argv := append([]string{}, p.argv...)
	argv = append(argv, "--no-defaults", "--initialize-insecure", "--datadir="+dir, "--init-file="+initFile)
	argv = append(argv, p.args...)
	argv = append(argv, mysqlSmall...)
	return initialise(ctx, append(argv, asUser()...))
}

// initMariaDB makes a MariaDB data directory with a root user without password.
func initMariaDB(ctx context.Context, _ *program, dir string) error {
	path, _ := lookPath("mariadb-install-db")
	// Without --force it refuses where the machine's own name cannot be looked up.
	argv := []string{
		path, "--no-defaults", "--force", "--auth-root-authentication-method=normal", "--skip-test-db",
		"--datadir=" + dir,
	}
	argv = append(argv, mariaDBSmall...)
	return initialise(ctx, append(argv, asUser()...))
}

func initialise(ctx context.Context, argv []string) error {
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("testbed: %s: %w\n%s", strings.Join(argv, " "), err, lastBytes(out, logTailBytes))
	}
	return nil
}

// asUser is the option without which database servers refuse to run as root.
func asUser() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// copyTree copies a directory; the files keep their modes.
func copyTree(dst, src string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(dst, rel)
		if d.IsDir() {
			return os.MkdirAll(target, info.Mode().Perm())
		}
		return copyFile(target, path, info.Mode().Perm())
	})
}

func copyFile(dst, src string, mode fs.FileMode) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
