package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// setting is what runs of freshet differ in.
type setting struct {
	source       *testbed.Server
	log          eventLog // nil: embedded
	start        string   // empty: now
	secondDelete string   // empty: none
	mappings     string   // empty: productKeys
	redis        string   // as the configuration has it; empty: the one that all sections share
	more         string   // further lines of the configuration
}

// productKeys is the mapping of what is only deleted.
const productKeys = `  - table: shop.product
    keys: ["product:{id}"]
`

// eventLog is one of freshet's two: it returns the configuration of one in the directory, which is new.
type eventLog func(ctx context.Context, b *benchmark, dir string) (string, error)

func embedded(_ context.Context, _ *benchmark, dir string) (string, error) {
	return fmt.Sprintf("{dir: %q}", filepath.Join(dir, "data")), nil
}

// throughKafka has a topic for each run, so that nothing of the run before is left to do.
func throughKafka(ctx context.Context, b *benchmark, dir string) (string, error) {
	return b.kafkaLog(ctx, filepath.Base(dir), "")
}

// partitioned has the same topic for all runs with as many partitions, as users have one topic for long: a broker makes
// the files of a partition when its first record comes, which takes as much CPU as tens of thousands of keys. It is for
// runs that finish all that they have read, so that they leave nothing to the next.
func partitioned(n int) eventLog {
	return func(ctx context.Context, b *benchmark, _ string) (string, error) {
		return b.kafkaLog(ctx, fmt.Sprintf("bench%d", n), fmt.Sprintf(", partitions: %d", n))
	}
}

func (b *benchmark) kafkaLog(ctx context.Context, topic, more string) (string, error) {
	c, err := b.kafkaCluster(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("{kind: kafka, kafka: {brokers: [%s], topic: %q%s}}", strings.Join(c.Brokers(), ","), topic, more),
		nil
}

// command returns freshet run as users run it, with a configuration, and a store or a source's name, of its own, so
// that it begins where its start says.
func (b *benchmark) command(ctx context.Context, s setting, flags ...string) (*exec.Cmd, error) {
	if s.redis == "" {
		rdb, err := b.redisServer(ctx)
		if err != nil {
			return nil, err
		}
		s.redis = fmt.Sprintf("{addresses: [%q]}", rdb.Addr)
	}
	dir, err := os.MkdirTemp(b.dir, "run")
	if err != nil {
		return nil, err
	}
	if s.log == nil {
		s.log = embedded
	}
	log, err := s.log(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`source: {name: %q, addresses: [%q], user: root, start: %q}
redis: %s
eventlog: %s
admin: {listen: none}
log: {level: warn}
invalidator: {second_delete: %s}
%smappings:
%s`, filepath.Base(dir), s.source.Addr, orElse(s.start, "now"), s.redis, log, orElse(s.secondDelete, "none"), s.more, orElse(s.mappings, productKeys))
	file := filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, b.freshet, append([]string{"run", "-c", file}, flags...)...), nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// caughtUp is what a run of freshet said that ended by itself.
type caughtUp struct {
	rows    int
	seconds float64
	cpu     time.Duration // user and system, of the whole process
}

func (c *caughtUp) rate() float64 { return float64(c.rows) / c.seconds }

// catchUp runs freshet until it has caught up. It must have read so many row changes.
func (b *benchmark) catchUp(ctx context.Context, s setting, changes int) (*caughtUp, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd, err := b.command(ctx, s, "--until-caught-up")
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s%s", err, out, stderr.String())
	}
	c, err := parseCaughtUp(string(out), changes)
	if err != nil {
		return nil, err
	}
	c.cpu = usedCPU(cmd)
	return c, nil
}

var resultLine = regexp.MustCompile(`^caught up: rows=(\d+) keys=(\d+) seconds=([0-9.]+)$`)

// parseCaughtUp reads freshet's last line.
func parseCaughtUp(out string, changes int) (*caughtUp, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	m := resultLine.FindStringSubmatch(lines[len(lines)-1])
	if m == nil {
		return nil, fmt.Errorf("the last line is not a result: %q", lines[len(lines)-1])
	}
	rows, _ := strconv.Atoi(m[1])
	seconds, err := strconv.ParseFloat(m[3], 64)
	if rows != changes || err != nil {
		return nil, fmt.Errorf("%d row changes were made, but freshet says %q", changes, m[0])
	}
	return &caughtUp{rows: rows, seconds: seconds}, nil
}
