package testbed

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What moves slots by itself is taken where the user names it. Another server that is named has no part in it, and one
// that does not start is an error.
func TestAValkeyThatIsNamedIsTheOneThatMovesSlots(t *testing.T) {
	home, cache := t.TempDir(), t.TempDir()
	t.Setenv(EnvRedisHome, home)
	t.Setenv("XDG_CACHE_HOME", cache)
	own := filepath.Join(cache, "freshet-testbed/sid/usr/bin/valkey-server")
	script := func(path, does string) {
		t.Helper()
		Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+does+"\n"), 0o755))
	}
	script(own, "echo Valkey server v=9.1.2")
	valkey, redis := filepath.Join(home, "bin/valkey-server"), filepath.Join(home, "bin/redis-server")
	for _, c := range []struct{ program, does, taken string }{
		{valkey, "echo Valkey server v=10.0.1", valkey},
		{valkey, "echo Valkey server v=8.1.4", own},
		{redis, "echo Redis server v=10.0.1", own},
		{valkey, "exit 1", ""},
	} {
		Must(t, os.RemoveAll(filepath.Join(home, "bin")))
		script(c.program, c.does)
		p, err := (&installer{log: io.Discard}).valkey(t.Context())
		if c.taken == "" {
			if err == nil || !strings.Contains(err.Error(), EnvRedisHome) {
				t.Errorf("%s leads to %v, want an error that names the variable", c.does, err)
			}
		} else if err != nil || p.argv[len(p.argv)-1] != c.taken {
			t.Errorf("%s: %+v, %v; want %s", c.does, p, err, c.taken)
		}
	}
	script(own, "echo Valkey server v=8.1.4")
	if _, err := (&installer{log: io.Discard}).valkey(t.Context()); err == nil {
		t.Error("an older Valkey of our own was taken")
	}
}
