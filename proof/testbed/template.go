package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// templateRevision changes whenever initialised data directories would come out differently.
const templateRevision = "2"

// holeBytes is how many zeros in a row of a template are left out. A server's data directory is mostly zeros, in which
// it has not written anything yet: copying them takes the processor and the disk more than all else of a start.
const holeBytes = 64 << 10

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
	if err := dig(part); err != nil {
		return "", fmt.Errorf("testbed: data template: %w", err)
	}
	return dir, os.Rename(part, dir)
}

// dig makes holes of the zeros in the files of a directory.
func dig(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		for at := 0; at < len(b); at += holeBytes {
			block := b[at:min(at+holeBytes, len(b))]
			if len(bytes.TrimLeft(block, "\x00")) == 0 {
				continue
			}
			if _, err := f.WriteAt(block, int64(at)); err != nil {
				return err
			}
		}
		return f.Truncate(int64(len(b)))
	})
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
	return initialise(ctx, append(argv, asUser()...), nil)
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
	return initialise(ctx, append(argv, asUser()...), nil)
}

// initialise runs what makes a data directory; it reads the statements, if there are any.
func initialise(ctx context.Context, argv []string, statements io.Reader) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = statements
	if out, err := cmd.CombinedOutput(); err != nil {
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
	return errors.Join(copyData(out, in), out.Close())
}

// copyData copies a file to an empty one. Holes stay holes.
func copyData(out, in *os.File) error {
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for end := int64(0); end < size; {
		var begin int64
		if begin, end, err = written(in, end, size); err != nil {
			return err
		}
		if _, err := in.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, end-begin); err != nil {
			return err
		}
	}
	return out.Truncate(size)
}

// written returns where a file goes on after its holes from a place on, and where the next hole is: all of the rest
// where nobody can tell.
func written(f *os.File, at, size int64) (begin, end int64, err error) {
	if runtime.GOOS != "linux" {
		return at, size, nil
	}
	const seekData, seekHole = 3, 4 // Linux' lseek(2); others have other numbers
	switch begin, err = f.Seek(at, seekData); {
	case errors.Is(err, syscall.ENXIO): // nothing but a hole
		return size, size, nil
	case errors.Is(err, syscall.EINVAL): // an old file system
		return at, size, nil
	case err != nil:
		return 0, 0, err
	}
	end, err = f.Seek(begin, seekHole)
	return begin, end, err
}
