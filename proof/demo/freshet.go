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

// freshet is one process of the program under show.
type freshet struct {
	binary string
	role   string // run, reader or invalidator
	name   string // for people
	file   string // of the configuration
	config string // its text
	log    *os.File
	client *admin.Client
	cmd    *exec.Cmd
	exited chan error
}

// buildFreshet builds the program and returns its path.
func buildFreshet(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "freshet")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/freshet")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build freshet: %w", err)
	}
	return binary, nil
}

// newFreshet writes the configuration of one process. It is not started yet.
func (s *stage) newFreshet(binary, role, name string) (*freshet, error) {
	f := &freshet{
		binary: binary, role: role, name: name,
		file: filepath.Join(s.dir, strings.ReplaceAll(name, " ", "-")+".yaml"),
	}
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	f.config = s.sections(role) + fmt.Sprintf("admin:\n  listen: %q\n", listen)
	if err := os.WriteFile(f.file, []byte(f.config), 0o600); err != nil {
		return nil, err
	}
	f.client = admin.NewClient("http://"+listen, "", nil)
	f.log, err = os.Create(f.file + ".log")
	return f, err
}

// sections returns the parts of the configuration that a role needs.
func (s *stage) sections(role string) string {
	var text strings.Builder
	if role != "invalidator" {
		fmt.Fprintf(&text, "source:\n  addresses: [%q]\n  user: %s\n", s.database.Addr, s.database.User)
		if s.database.Password != "" {
			fmt.Fprintf(&text, "  password: %q\n", s.database.Password)
		}
	}
	if role != "reader" {
		fmt.Fprintf(&text, "redis:\n  addresses: [%q]\n", s.redis.Addr)
	}
	if s.cluster == nil {
		fmt.Fprintf(&text, "eventlog:\n  dir: %s\n", filepath.Join(s.dir, "data"))
	} else {
		fmt.Fprintf(&text, "eventlog:\n  kind: kafka\n  kafka: {brokers: [%q]}\n", s.cluster.Brokers()[0])
	}
	if role != "reader" {
		text.WriteString("scope_rate: 20000   # keys a second, so that a short demo sees the end of it\n")
	}
	if role != "invalidator" { // D travels with the keys
		d := secondDelete
		if s.single {
			d = "none   # one delete only: this is what goes wrong"
		}
		fmt.Fprintf(&text, `invalidator:
  second_delete: %s
mappings:
  - table: freshet_demo_shop.product
    keys:
      - "product:{id}"
      - "category:{category_id}:products"
  - table: freshet_demo_shop.product
    keys:
      - "price:{id}"   # written again, not deleted
    rebuild: {from: row, as: json, columns: [id, price, version], missing: {cache: "%s", ttl: 1m}}
`, d, noPrice)
	}
	return text.String()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start starts freshet and waits until it streams, or has its share of the topic.
func (f *freshet) start(ctx context.Context) error {
	cmd := exec.Command(f.binary, f.role, "-c", f.file)
	cmd.Stdout, cmd.Stderr = f.log, f.log
	// A group of its own: Ctrl-C ends the demo, which then still needs freshet for a moment.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.cmd, f.exited = cmd, make(chan error, 1)
	go func() { f.exited <- cmd.Wait() }()
	return f.await(ctx, "begin",
		func(s status) bool { return s.Source.Connected || len(s.Partitions) > 0 && f.role == "invalidator" })
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
		return fmt.Errorf("freshet %s had stopped by itself:\n%s", f.name, f.said())
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
	// Partitions are those of the topic that this process has.
	Partitions []json.RawMessage `json:"partitions"`
	// FreshAsOf is when the source was last asked of whose changes all are finished, final deletes included.
	FreshAsOf time.Time `json:"fresh_as_of"`
	// Doubts are what may have left stale keys.
	Doubts []suspicion `json:"doubts"`
}

// suspicion is a doubt of freshet.
type suspicion struct {
	ID      string `json:"id"`
	Cause   string `json:"cause"`
	Message string `json:"message"`
}

// older returns the doubt about a Redis that came back with older data; nil if there is none.
func (s *status) older() *suspicion {
	for i := range s.Doubts {
		if s.Doubts[i].Cause == "redis_changed" {
			return &s.Doubts[i]
		}
	}
	return nil
}

// finish waits until freshet has finished its share of everything that was committed until now.
func (f *freshet) finish(ctx context.Context, now time.Time) error {
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
			return fmt.Errorf("freshet %s stopped: %w\n%s", f.name, err, f.said())
		case <-ctx.Done():
			return fmt.Errorf("freshet %s did not %s within %s: status %s\n%s", f.name, what, patience, raw, f.said())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
