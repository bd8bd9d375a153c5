package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The packages of each way to install. The programs come without system services.
const (
	mariaDBPackages  = "mariadb-server-core mariadb-client-core"
	redisPackages    = "redis-tools" // its redis-check-rdb is the server, when called redis-server
	sidPackages      = "mysql-server-core,redis-server,valkey-server"
	sidMirror        = "http://deb.debian.org/debian"
	compilerPackages = "gcc libc6-dev" // what go test -race needs
)

// CacheDir is the directory that holds installed servers and the data directories which new
// servers are copied from: $XDG_CACHE_HOME/freshet-testbed, by default
// ~/.cache/freshet-testbed. It may be removed at any time when no test runs.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("testbed: no cache directory: %w", err)
	}
	dir := filepath.Join(base, "freshet-testbed")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("testbed: cache directory: %w", err)
	}
	return dir, nil
}

// Install finds or installs all that the tests need: every server, with the data directory that
// its instances are copied from, and the C compiler that the race detector needs. It writes
// what it installs, before it does, and what it found to log.
func Install(ctx context.Context, log io.Writer) error {
	in := &installer{log: log}
	if err := in.compiler(ctx); err != nil {
		return err
	}
	finds := []func(context.Context) (*program, error){
		in.mysql, in.mariadb, in.redis, in.redis8, in.valkey, in.prometheus,
	}
	for _, version := range KafkaVersions() {
		finds = append(finds, func(ctx context.Context) (*program, error) { return in.kafka(ctx, version) })
	}
	for _, find := range finds {
		p, err := find(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(log, "testbed: %s %s: %s\n", p.name, p.version, p.argv[len(p.argv)-1])
		if p.initData != nil {
			template, err := dataTemplate(ctx, p)
			if err == nil && p.name == "kafka" {
				_, err = in.withArchive(ctx, p, template)
			}
			if err != nil {
				return err
			}
		}
	}
	_, err := in.suites(ctx)
	return err
}

// installer finds programs, and installs what is missing.
type installer struct {
	log io.Writer // gets a line before anything is installed
}

// need is something that may have to be installed.
type need struct {
	what    string // and how, for the user
	present func() bool
	can     func() error // why it cannot be installed here, or nil
	install func(context.Context) error
	missing func(why error) error // what to say then
}

// ensure installs what is needed, under the lock that all test processes share, unless it is
// there.
func (in *installer) ensure(ctx context.Context, n need) error {
	if n.present() {
		return nil
	}
	unlock, err := lockCache(ctx, "install")
	if err != nil {
		return err
	}
	defer unlock()
	if n.present() { // another process has installed it meanwhile
		return nil
	}
	if err := n.can(); err != nil {
		return n.missing(err)
	}
	fmt.Fprintf(in.log, "testbed: installing %s\n", n.what)
	start := time.Now()
	if err := n.install(ctx); err != nil {
		return err
	}
	fmt.Fprintf(in.log, "testbed: installed %s in %s\n", n.what, time.Since(start).Round(time.Second))
	return nil
}

// aptNeed is a need that Debian packages meet.
func (in *installer) aptNeed(what, packages string, present func() bool, missing func(error) error) need {
	return need{
		what:    what + " (apt-get install " + packages + ")",
		present: present,
		can:     canInstall,
		missing: missing,
		install: func(ctx context.Context) error { return in.apt(ctx, strings.Fields(packages)...) },
	}
}

// apt installs Debian packages on this machine.
func (in *installer) apt(ctx context.Context, packages ...string) error {
	const wait = "DPkg::Lock::Timeout=120" // someone else may be installing
	if err := asRoot(ctx, "apt-get", "-q", "-o", wait, "update"); err != nil {
		return err
	}
	return asRoot(ctx, "apt-get",
		append([]string{"-q", "-y", "-o", wait, "--no-install-recommends", "install"}, packages...)...)
}

// compiler finds or installs a C compiler.
func (in *installer) compiler(ctx context.Context) error {
	present := func() bool { _, err := exec.LookPath("gcc"); return err == nil || os.Getenv("CC") != "" }
	return in.ensure(ctx, in.aptNeed("a C compiler", compilerPackages, present, func(why error) error {
		return fmt.Errorf("testbed: gcc is missing, which go test -race needs, and cannot be installed (%w): put gcc on "+
			"PATH, or set CC", why)
	}))
}

// sid makes a directory with a minimal Debian sid that holds MySQL, Redis 8 and Valkey. Nothing of it
// touches the system: its programs are run from there with its own libraries. Sid has one version of
// each, and moves on; that these are Debian's is checked with the keys of its archive.
func (in *installer) sid(ctx context.Context, dir string) error {
	keys, _ := filepath.Glob("/usr/share/keyrings/debian-archive-keyring.*")
	if _, err := exec.LookPath("debootstrap"); err != nil || len(keys) == 0 {
		if err := in.apt(ctx, "debootstrap", "debian-archive-keyring"); err != nil {
			return err
		}
	}
	part := dir + ".part"
	if err := asRoot(ctx, "rm", "-rf", part); err != nil {
		return err
	}
	if err := asRoot(ctx, "debootstrap", "--force-check-gpg", "--variant=minbase", "--include="+sidPackages, "sid",
		part, sidMirror); err != nil {
		return err
	}
	// The downloaded archives are half of the space.
	if err := asRoot(ctx, "rm", "-rf", part+"/var/cache/apt", part+"/var/lib/apt/lists", part+
		"/usr/share/doc"); err != nil {
		return err
	}
	return asRoot(ctx, "mv", part, dir)
}

// canInstall says why nothing can be installed on this machine, or nil.
func canInstall() error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("this is not Debian or Ubuntu")
	}
	if os.Geteuid() != 0 && exec.Command("sudo", "-n", "true").Run() != nil {
		return errors.New("this user is not root and has no sudo without a password")
	}
	return nil
}

// asRoot runs a command as root. Its output is shown only if it fails.
func asRoot(ctx context.Context, name string, args ...string) error {
	argv := append([]string{"env", "DEBIAN_FRONTEND=noninteractive", name}, args...)
	if os.Geteuid() != 0 {
		argv = append([]string{"sudo", "-n"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testbed: %s: %w\n%s", name, err, lastBytes(out, logTailBytes))
	}
	return nil
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// lockCache takes a lock that all test processes of this user share.
func lockCache(ctx context.Context, name string) (unlock func(), err error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("testbed: lock: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("testbed: lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("testbed: lock %s: %w", f.Name(), ctx.Err())
		case <-tick.C:
		}
	}
}
