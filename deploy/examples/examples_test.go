package examples

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should happen within seconds. It is no measure of speed: the machine is
// busy.
const patience = 60 * time.Second

// names returns the directories of the examples.
func names(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/freshet.yaml")
	testbed.Must(t, err)
	var all []string
	for _, f := range files {
		all = append(all, filepath.Dir(f))
	}
	return all
}

// Each README, typed word for word, shows what it says: with MySQL and with MariaDB in a soak, and else with one of
// them, by chance.
func TestWhatTheReadmesShowIsWhatHappens(t *testing.T) {
	on := map[string][]string{}
	for _, name := range names(t) {
		for _, flavor := range testbed.Some(t, slices.Sorted(maps.Keys(testbed.Databases))) {
			on[flavor] = append(on[flavor], name)
		}
	}
	for flavor, start := range testbed.Databases {
		t.Run(flavor, func(t *testing.T) {
			t.Parallel()
			source := start(t, "--binlog-row-metadata=FULL")
			single := newDesk(t, source, testbed.Redis(t))
			for _, name := range on[flavor] {
				d := single
				switch name {
				case "cluster":
					d = newDesk(t, source, testbed.Cluster(t, testbed.ClusterOptions{Masters: 3}).Masters[0], "-c")
				case "sentinel":
					d = watched(t, source)
				}
				t.Run(name, func(t *testing.T) { d.follow(t, name) })
			}
		})
	}
}

// desk is where somebody sits who tries the examples: servers, and programs that reach them.
type desk struct {
	redis *testbed.RedisServer
	path  string // of the programs
	env   []string
}

// newDesk gives redis-cli the arguments that somebody has in its alias.
func newDesk(t *testing.T, source *testbed.Server, redis *testbed.RedisServer, args ...string) *desk {
	t.Helper()
	bin := t.TempDir()
	program := func(name, command string) {
		testbed.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexec "+command+` "$@"`+"\n"), 0o700))
	}
	program("mysql", fmt.Sprintf("%s --no-defaults -h 127.0.0.1 -P %d -u %s", look(t, "mysql", "mariadb"), source.Port,
		source.User))
	program("redis-cli", fmt.Sprintf("%s -p %d --no-raw %s", look(t, "redis-cli"), redis.Port,
		strings.Join(args, " "))) // as on a terminal
	program("freshet", testbed.RaceBinary(t))
	return &desk{redis: redis, path: bin, env: []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"FRESHET_SOURCE_ADDRESSES=" + source.Addr, "FRESHET_REDIS_ADDRESSES=" + redis.Addr,
	}}
}

// watched is a desk with a master, a replica, and three sentinels. redis-cli knows them by the ports of the README.
func watched(t *testing.T, source *testbed.Server) *desk {
	t.Helper()
	master := testbed.Redis(t)
	replica := testbed.Redis(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.Port))
	all := testbed.Sentinels(t, testbed.SentinelOptions{Name: "mymaster", Master: master}, 3)
	testbed.Eventually(t, patience, "the sentinels know the replica", func() bool {
		return !slices.ContainsFunc(all, func(s *testbed.Sentinel) bool {
			of, err := s.Client().Replicas(t.Context(), "mymaster").Result()
			return err != nil || len(of) != 1 || of[0]["master-link-status"] != "ok"
		})
	})
	d := newDesk(t, source, master)
	cli := filepath.Join(d.path, "redis-cli")
	_, sentinelPort, _ := strings.Cut(all[0].Addr, ":")
	testbed.Must(t, os.WriteFile(cli, fmt.Appendf(nil, `#!/bin/sh
for word; do
  shift
  case $word in 6380) word=%d ;; 26379) word=%s ;; esac
  set -- "$@" "$word"
done
exec %s -p %d --no-raw "$@"
`, replica.Port, sentinelPort, look(t, "redis-cli"), master.Port), 0o700))
	var addresses []string
	for _, s := range all {
		addresses = append(addresses, s.Addr)
	}
	d.env = append(d.env, "FRESHET_REDIS_ADDRESSES="+strings.Join(addresses, ","))
	return d
}

// look returns where a program is.
func look(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not on the PATH; `make servers` installs it", names[0])
	return ""
}

// follow does what a README says.
func (d *desk) follow(t *testing.T, name string) {
	d.redis.Do(t, "FLUSHALL")
	text, err := os.ReadFile(filepath.Join(name, "README.md"))
	testbed.Must(t, err)
	dir, err := filepath.Abs(name)
	testbed.Must(t, err)
	s := &session{t: t, dir: dir, env: append(slices.Clone(d.env),
		"FRESHET_ADMIN_LISTEN="+testbed.FreeAddress(t), "FRESHET_EVENTLOG_DIR="+filepath.Join(t.TempDir(), "data"))}
	commands := 0
	for _, b := range blocks(string(text)) {
		if b.kind == "text" {
			s.awaitWritten(b.lines)
			continue
		}
		for _, c := range b.commands() {
			s.do(c)
			commands++
		}
	}
	if s.freshet == nil || commands < 5 {
		t.Fatalf("%d commands were found, which is not a walk through an example", commands)
	}
	if code := s.freshet.Stop(t, patience); code != 0 {
		t.Errorf("freshet stopped with exit code %d", code)
	}
	if said := s.freshet.Stderr(); strings.Contains(said, "DATA RACE") {
		t.Errorf("freshet has a race:\n%s", said)
	}
}

// block is a fenced part of a README that counts.
type block struct {
	kind  string // console or text
	lines []string
}

var fenced = regexp.MustCompile("(?ms)^```(console|text)\n(.*?)^```$")

func blocks(page string) (all []block) {
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		all = append(all, block{m[1], strings.Split(strings.TrimSuffix(m[2], "\n"), "\n")})
	}
	return all
}

// command is what is typed, and what is shown after it.
type command struct {
	line   string
	output []string
}

func (b block) commands() (all []command) {
	for _, line := range b.lines {
		if typed, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, command{line: typed})
		} else {
			last := &all[len(all)-1]
			last.output = append(last.output, line)
		}
	}
	return all
}

// session is one example being followed.
type session struct {
	t       *testing.T
	dir     string
	env     []string
	freshet *testbed.Running // nil before it is started
	lasting *testbed.Running // the newest command that does not end by itself
}

// asks are the commands of Redis that change nothing.
var asks = []string{"ROLE", "EXISTS", "GET", "MGET", "HGET", "HGETALL", "SMEMBERS", "ZRANGE", "TTL", "XRANGE", "XREAD"}

// options are those of redis-cli that say nothing about the command.
var options = regexp.MustCompile(`--raw |-p \d+ `)

// cutOff is how a command ends whose connection is ended by Redis: a sentinel has all clients of a server connect again
// when it gives it another part.
var cutOff = regexp.MustCompile(`Connection reset by peer|Server closed the connection`)

// do types a command.
func (s *session) do(c command) {
	s.t.Helper()
	words := strings.Fields(options.ReplaceAllString(c.line, ""))
	switch {
	case strings.HasPrefix(c.line, "freshet run"):
		s.freshet = s.start(c.line)
		s.lasting = s.freshet
		s.freshet.WaitOutput(s.t, patience, "reading the source")
	case words[0] == "redis-cli" && words[1] == "SUBSCRIBE":
		s.lasting = s.start(c.line)
		s.lasting.WaitOutput(s.t, patience, `"subscribe"`)
	case words[0] == "redis-cli" && slices.Contains(asks, words[1]), strings.Contains(c.line, "freshet status"):
		have, want := "", strings.Join(c.output, "\n")
		testbed.Eventually(s.t, patience, fmt.Sprintf("%s shows\n%s", c.line, want), func() bool {
			now, err := s.try(c.line)
			if err != nil && cutOff.MatchString(err.Error()) {
				return false
			}
			testbed.Must(s.t, err)
			if now != have {
				s.t.Logf("%s\n%s", c.line, now)
			}
			have = now
			return shows(have, want)
		})
	default:
		if have, want := s.run(c.line), strings.Join(c.output, "\n"); !shows(have, want) {
			s.t.Fatalf("%s\n%s\nand not\n%s", c.line, have, want)
		}
	}
}

// start starts a line in a shell of its own.
func (s *session) start(line string) *testbed.Running {
	s.t.Helper()
	return testbed.Program{Path: "/bin/sh", Args: []string{"-c", "exec " + line}, Dir: s.dir, Env: s.env}.Start(s.t)
}

// run runs a line to its end and returns what it wrote.
func (s *session) run(line string) string {
	s.t.Helper()
	out, err := s.try(line)
	testbed.Must(s.t, err)
	return out
}

// try is run, and returns the line's error.
func (s *session) try(line string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", line, err, out, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// awaitWritten waits until the newest command with a terminal of its own has written lines.
func (s *session) awaitWritten(lines []string) {
	s.t.Helper()
	s.lasting.WaitOutput(s.t, patience, strings.Join(lines, "\n"))
}

// shows reports whether an output is the one that a README shows.
func shows(have, want string) bool {
	want, open := strings.CutSuffix(want, "…")
	var pattern strings.Builder
	for i, part := range strings.Split(want, "…") {
		if i > 0 {
			pattern.WriteString(".*")
		}
		pattern.WriteString(regexp.QuoteMeta(part))
	}
	if open {
		pattern.WriteString("(?s:.*)")
	}
	return regexp.MustCompile("^" + pattern.String() + "$").MatchString(have)
}

func TestWhatIsShownIsTold(t *testing.T) {
	for _, c := range []struct {
		have, want string
		same       bool
	}{
		{"(integer) 1", "(integer) 1", true},
		{"(integer) 12", "(integer) 1", false},
		{"(integer) 3599", "(integer) 3…", true},
		{"(integer) 2599", "(integer) 3…", false},
		{"a\nb", "a…", true},
		{"1) \"17-0\"\n2) x", "1) \"…\"\n2) x", true},
		{"1) \"17-0\"\n3) x", "1) \"…\"\n2) x", false},
		{"", "", true},
		{"x", "", false},
	} {
		if shows(c.have, c.want) != c.same {
			t.Errorf("%q shows %q: want %t", c.have, c.want, c.same)
		}
	}
}

// The table names every example, and every example has all its files and the same parts.
func TestTheExamplesAreWholeAndAlike(t *testing.T) {
	table, err := os.ReadFile("README.md")
	testbed.Must(t, err)
	all := names(t)
	if len(all) < 14 {
		t.Errorf("there are only %d examples: %v", len(all), all)
	}
	for _, name := range all {
		if !strings.Contains(string(table), "]("+name+"/README.md)") {
			t.Errorf("README.md does not name %s", name)
		}
		if _, err := os.Stat(filepath.Join(name, "schema.sql")); err != nil {
			t.Error(err)
		}
		page, err := os.ReadFile(filepath.Join(name, "README.md"))
		testbed.Must(t, err)
		for _, part := range []string{
			"\n$ mysql < schema.sql\n$ freshet run\n", "**Promised**", "**Not promised**",
			"docs/guarantees.md", "[the table of examples](../README.md)",
		} {
			if !strings.Contains(strings.ReplaceAll(string(page), "**Not\npromised**", "**Not promised**"), part) {
				t.Errorf("%s/README.md lacks %q", name, part)
			}
		}
	}
}

// What the schedules run is the command that the README shows.
func TestTheSchedulesRunWhatTheReadmeShows(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("warm", name))
		testbed.Must(t, err)
		return string(text)
	}
	plain := strings.NewReplacer(`"`, "", "'", "", ",", "", "[", "", "]", "")
	const command = "--table example.product --where 'in_stock > 0' --wait"
	for _, name := range []string{"README.md", "cronjob.yaml", "freshet-warm.service"} {
		if text := read(name); !strings.Contains(plain.Replace(text), plain.Replace(command)) {
			t.Errorf("%s does not run: %s", name, command)
		}
	}
}
