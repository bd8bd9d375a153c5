package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// eventLog is one of freshet's two: it returns the configuration of one in the directory, which is new.
type eventLog func(b *benchmark, dir string) string

func embedded(_ *benchmark, dir string) string {
	return fmt.Sprintf("{dir: %q}", filepath.Join(dir, "data"))
}

// throughKafka has a topic for each run, so that all begin at the beginning.
func throughKafka(b *benchmark, dir string) string {
	return fmt.Sprintf("{kind: kafka, kafka: {brokers: [%s], topic: %q}}", strings.Join(b.kafka.Brokers(), ","), filepath.Base(dir))
}

// productKeys is the mapping of what is only deleted.
const productKeys = `  - table: shop.product
    keys: ["product:{id}"]
`

// command returns freshet run with a new configuration and the given flags.
func (b *benchmark) command(ctx context.Context, l eventLog, start, secondDelete string, flags ...string) (*exec.Cmd, error) {
	return b.commandFor(ctx, productKeys, l, start, secondDelete, flags...)
}

// commandFor is command for other mappings.
func (b *benchmark) commandFor(ctx context.Context, mappings string, l eventLog, start, secondDelete string, flags ...string) (*exec.Cmd, error) {
	dir, err := os.MkdirTemp(b.dir, "run")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "freshet.yaml")
	text := fmt.Sprintf(`source: {addresses: [%q], user: root, start: %q}
redis: {addresses: [%q]}
eventlog: %s
admin: {listen: none}
log: {level: warn}
invalidator: {second_delete: %s}
mappings:
%s`, b.source.Addr, start, b.redis.Addr, l(b, dir), secondDelete, mappings)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, b.freshet, append([]string{"run", "-c", file}, flags...)...), nil
}
