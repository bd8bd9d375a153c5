package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/freshet/freshet/admin"
)

// freshet is the program under show, as a process of its own.
type freshet struct {
	binary string
	file   string // of the configuration
	config string // its text
	log    *os.File
	client *admin.Client
	cmd    *exec.Cmd
	exited chan error
}

func newFreshet(ctx context.Context, s *stage) (*freshet, error) {
	f := &freshet{binary: filepath.Join(s.dir, "freshet"), file: filepath.Join(s.dir, "freshet.yaml")}
	build := exec.CommandContext(ctx, "go", "build", "-o", f.binary, "./cmd/freshet")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build freshet: %w", err)
	}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d := secondDelete
	if s.single {
		d = "none   # one delete only: this is what goes wrong"
	}
	password := ""
	if s.database.Password != "" {
		password = fmt.Sprintf("\n  password: %q", s.database.Password)
	}
	f.config = fmt.Sprintf(`source:
  addresses: [%q]
  user: %s%s
redis:
  addresses: [%q]
eventlog:
  dir: %s
invalidator:
  second_delete: %s
admin:
  listen: %q
mappings:
  - table: freshet_demo_shop.product
    keys:
      - "product:{id}"
      - "category:{category_id}:products"
`, s.database.Addr, s.database.User, password, s.redis.Addr, filepath.Join(s.dir, "data"), d, listen)
	if err := os.WriteFile(f.file, []byte(f.config), 0o600); err != nil {
		return nil, err
	}
	f.client = admin.NewClient("http://"+listen, "", nil)
	f.log, err = os.Create(filepath.Join(s.dir, "freshet.log"))
	return f, err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts freshet and waits until it streams.
func (f *freshet) start(ctx context.Context) error {
	cmd := exec.Command(f.binary, "run", "-c", f.file)
	cmd.Stdout, cmd.Stderr = f.log, f.log
	// A group of its own: Ctrl-C ends the demo, which then still needs freshet for a moment.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.cmd, f.exited = cmd, make(chan error, 1)
	go func() { f.exited <- cmd.Wait() }()
	return f.await(ctx, "stream", func(s status) bool { return s.Source.Connected })
}

// kill kills freshet with SIGKILL, if it runs.
func (f *freshet) kill() error {
	if f.cmd == nil {
		return nil
	}
	err := f.cmd.Process.Kill()
	<-f.exited
	f.cmd = nil
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("freshet had stopped by itself:\n%s", f.said())
	}
	return err
}

func (f *freshet) said() string {
	b, err := os.ReadFile(f.log.Name())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// status is the part of freshet's status that the demo waits for.
type status struct {
	Source struct {
		Connected bool `json:"connected"`
	} `json:"source"`
	// FreshAsOf is when the source was last asked of whose changes all are finished, final deletes included.
	FreshAsOf time.Time `json:"fresh_as_of"`
}

// finish waits until freshet has finished everything that was committed up to now.
func (f *freshet) finish(ctx context.Context) error {
	now := time.Now()
	return f.await(ctx, "finish its work", func(s status) bool { return s.FreshAsOf.After(now) })
}

// patience is how long the demo waits for freshet at most.
const patience = time.Minute

func (f *freshet) await(ctx context.Context, what string, done func(status) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		raw, err := f.client.Status(ctx)
		var s status
		if err == nil && json.Unmarshal(raw, &s) == nil && done(s) {
			return nil
		}
		select {
		case err := <-f.exited:
			f.exited <- err
			return fmt.Errorf("freshet stopped: %w\n%s", err, f.said())
		case <-ctx.Done():
			return fmt.Errorf("freshet did not %s within %s: status %s\n%s", what, patience, raw, f.said())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
