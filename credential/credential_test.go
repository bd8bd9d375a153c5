package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "s3cret-canary"

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shell is a secret that a command prints.
func shell(script string) *Source {
	return Command("redis.password_command", []string{"sh", "-c", script})
}

func TestASecretIsWhatIsThereNow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	for name, s := range map[string]*Source{"file": File("redis.password_file", file), "command": shell("cat " + file)} {
		for content, want := range map[string]string{
			canary: canary, "x\n": "x", "y\r\n": "y", " s p ": " s p ", "two\n\n": "two\n",
		} {
			write(t, file, content)
			if got, err := s.Read(t.Context()); got != want || err != nil {
				t.Errorf("%s with %q: %q, %v", name, content, got, err)
			}
		}
		if !s.Changes() || s.Reveal() != "" {
			t.Errorf("%s: %v, %q", name, s.Changes(), s.Reveal())
		}
	}
	text := Text(canary)
	if got, err := text.Read(t.Context()); got != canary || err != nil || text.Changes() || text.Reveal() != canary {
		t.Errorf("a text: %q, %v", got, err)
	}
	if got, err := Text("").Read(t.Context()); got != "" || err != nil || Text("") != nil {
		t.Errorf("none: %q, %v", got, err)
	}
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"):                                          "no such file or directory",
		write(t, filepath.Join(dir, "empty"), ""):                             "is empty",
		write(t, filepath.Join(dir, "break"), "\n"):                           "is empty",
		write(t, filepath.Join(dir, "large"), strings.Repeat("x", MaxSize+1)): "is larger than 64KiB",
		dir:  "is a directory",
		fifo: "is not a regular file",
	} {
		_, err := File("source.password_file", path).Read(t.Context())
		if !IsUnread(err) || !strings.HasPrefix(err.Error(), "source.password_file: "+path) ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "read again at the next login") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := File("k", filepath.Join(dir, "absent")).Read(t.Context())
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v does not say which error it came of", err)
	}
}

func TestACommandThatFailsIsNamedWithoutWhatItPrinted(t *testing.T) {
	for script, want := range map[string]string{
		"echo " + canary + "; echo >&2; echo no token >&2; echo more >&2; exit 3":      "failed (exit status 3): no token",
		"echo " + canary + "; echo old " + canary + " >&2; false":                      "failed (exit status 1): old " + Mask,
		"echo note; echo " + canary + "; echo old " + canary + " >&2; false":           "failed (exit status 1): old " + Mask,
		"echo " + canary + "; echo; echo old " + canary + " >&2; false":                "failed (exit status 1): old " + Mask,
		"echo s3; yes '*' | head; echo " + canary + "; echo " + canary + " >&2; false": "(exit status 1): " + Mask + ":",
		"kill -9 $$":                            "failed (signal: killed)",
		"echo not logged in >&2; printf '\\n'":  "printed nothing: not logged in",
		"true":                                  "printed nothing",
		"while :; do echo " + canary + "; done": "command sh prints more than 64KiB",
		"printf '\\033[31mred\\033[0m\\n' >&2; exit 1":                       ": ?[31mred?[0m:",
		"head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1":                    ": " + strings.Repeat("x", maxLine) + "…:",
		"echo " + canary + "; sleep 300 & exit 0":                            "something that it started still held its output",
		"head -c 100000 /dev/zero | tr '\\0' y >&2; echo " + canary + " >&2": "printed nothing: yyy",
	} {
		_, err := shell(script).Read(t.Context())
		if !IsUnread(err) || !strings.HasPrefix(err.Error(), "redis.password_command: the command sh ") ||
			!strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "it is run again at the next login") {
			t.Errorf("%s:\n%v\nwant %q", script, err, want)
		}
		if strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%s: the secret is in the error", script)
		}
	}
	_, err := Command("k", []string{"/nowhere/vault"}).Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot be run: no such file or directory") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// started returns the process that a script has written down, once it has.
func started(t *testing.T, file string) int {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		data, _ := os.ReadFile(file)
		if text, whole := strings.CutSuffix(string(data), "\n"); whole {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("it was not started")
	return 0
}

// gone waits until a process is none any more, or only waits to be forgotten.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("process %d is still there", pid)
}

func TestACommandIsKilledWithAllThatItStarted(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		// cancel ends the wait, and late the time of the login; otherwise the command's time does.
		cancel, late bool
		want         string
	}{
		"its time is over":          {script: "sleep 300 & echo $! > %s; echo waiting >&2; wait", want: "had not ended after 100ms: waiting"},
		"nobody waits for it":       {script: "sleep 300 & echo $! > %s; wait", cancel: true, want: "context canceled"},
		"the login takes too long":  {script: "sleep 300 & echo $! > %s; wait", late: true, want: "was still running when"},
		"it left something running": {script: "sleep 300 >/dev/null 2>&1 & echo $! > %s; echo fine"},
	} {
		t.Run(name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			s := shell(fmt.Sprintf(c.script, pid))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.late {
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
			}
			if strings.Contains(c.want, "100ms") {
				s.command.timeout = 100 * time.Millisecond
			}
			ended := make(chan error, 1)
			go func() {
				_, err := s.Read(ctx)
				ended <- err
			}()
			if c.cancel {
				started(t, pid)
				cancel()
			}
			err := <-ended
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := os.Stat(pid); err == nil { // in a tenth of a second it may not have come so far
				gone(t, started(t, pid))
			}
		})
	}
}

func TestASecretIsPrintedByNothing(t *testing.T) {
	s := Text(canary)
	remembers := shell("echo " + canary)
	if err := remembers.Seldom(t.Context(), func(string) error { return nil }, nil); err != nil {
		t.Fatal(err)
	}
	remembers.command.words = nil // a command is no secret
	type options struct {
		Password *Source
		password *Source
	}
	for _, s := range []*Source{s, remembers} {
		for _, thing := range []any{s, options{s, s}, &options{s, s}, []*Source{s}} {
			var out bytes.Buffer
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%e", "%c", "%t"} {
				fmt.Fprintf(&out, verb+"\n", thing)
			}
			j, err := json.Marshal(thing)
			fmt.Fprint(&out, string(j), err)
			slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "thing", thing)
			slog.New(slog.NewTextHandler(&out, nil)).Info("x", "thing", thing)
			for _, h := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)} {
				if strings.Contains(out.String(), h) {
					t.Errorf("%T holds %s:\n%s", thing, h, out.String())
				}
			}
		}
	}
	if got := fmt.Sprintf("%v %s %q", s, Text(""), s); got != Mask+`  "`+Mask+`"` {
		t.Error(got)
	}
}

func TestACommandIsSplitAsAShellWould(t *testing.T) {
	for text, want := range map[string][]string{
		"vault read -field=password db/creds/x": {"vault", "read", "-field=password", "db/creds/x"},
		"  a\tb\n":                              {"a", "b"},
		`a 'b c' "d e"f`:                        {"a", "b c", "d ef"},
		`a '' ""`:                               {"a", "", ""},
		`a \  \" "\"\\\n" '\n'`:                 {"a", " ", `"`, `"\\n`, `\n`},
		`sh -c 'cat x | head -1'`:               {"sh", "-c", "cat x | head -1"},
		`a "$HOME" b#c`:                         {"a", "$HOME", "b#c"},
		`ünï 'cödé'`:                            {"ünï", "cödé"},
	} {
		got, err := Split(text)
		if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "it names no program", " \n": "it names no program", "''": "it names no program", "'a": "a quote ' has no end",
		`a "b\"`: `a quote " has no end`, "a | b": "| would be an argument", "a > b": "> would be", "a $B": "$ would be",
		"a; b": "; would be", "a `b`": "` would be", "a & b": "& would be", `a \`: `\ would be`,
	} {
		if words, err := Split(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %q", text, words, err, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(`a 'b c' "d\"e"f \g`)
	f.Fuzz(func(t *testing.T, text string) {
		words, err := Split(text)
		if err != nil {
			return
		}
		if len(words) == 0 || words[0] == "" {
			t.Fatalf("%q is split into %q", text, words)
		}
		again := ""
		for _, w := range words {
			again += " '" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		if twice, err := Split(again); err != nil || fmt.Sprintf("%q", twice) != fmt.Sprintf("%q", words) {
			t.Errorf("%q is split into %q, and %s into %q (%v)", text, words, again, twice, err)
		}
	})
}
