package config

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// secretive returns a configuration with every kind of secret, and what none of its output may hold.
func secretive(t *testing.T) (*Config, []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("hunter2-from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FRESHET_REDIS_PASSWORD", "hunter2-from-a-variable")
	text := strings.Replace(minimal, "user: freshet", "user: freshet\n  password: hunter2-from-yaml", 1) +
		"admin: {token_file: " + file + "}\n"
	c := mustParse(t, text)
	for s, want := range map[Secret]string{
		c.Source.Password: "hunter2-from-yaml", c.Redis.Password: "hunter2-from-a-variable",
		c.Admin.Token: "hunter2-from-a-file",
	} {
		if s.Reveal() != want {
			t.Fatalf("read as %q, want %q", s.Reveal(), want)
		}
	}
	var hidden []string
	for _, s := range []string{"hunter2", "HUNTER2"} {
		// As it is, and as %x, %X, %v and %d of its bytes would show it.
		hidden = append(hidden, s, fmt.Sprintf("%x", s), fmt.Sprintf("%X", s), strings.Trim(fmt.Sprint([]byte(s)), "[]"))
	}
	return c, hidden
}

func TestSecretsAreShownByNothing(t *testing.T) {
	c, hidden := secretive(t)
	type around struct{ config *Config }
	type holder struct {
		value  Config
		secret Secret
	}
	things := map[string]any{
		"config": c, "config by value": *c, "source": c.Source, "secret": c.Source.Password,
		"secret by pointer":    &c.Source.Password,
		"in unexported fields": around{c}, "in unexported fields by value": holder{*c, c.Redis.Password},
		"list": []Secret{c.Source.Password}, "map": map[Secret]Secret{c.Source.Password: c.Admin.Token},
		"error": fmt.Errorf("redis: %v: %w", c.Redis, errors.New("no")),
	}
	for name, thing := range things {
		for how, out := range outputs(thing) {
			for _, h := range hidden {
				if strings.Contains(out, h) {
					t.Errorf("%s shown with %s holds %q:\n%s", name, how, h, out)
				}
			}
		}
	}
}

// outputs returns a thing as everything prints it that we know of.
func outputs(thing any) map[string]string {
	out := map[string]string{}
	for _, verb := range []string{
		"v", "+v", "#v", "s", "q", "x", "X", "d", "o", "b", "c", "U", "e", "t", "T", "+q", "#q",
		"#x", "10s", "-10.3v", "w",
	} {
		out["%"+verb] = fmt.Sprintf("%"+verb, thing)
	}
	out["Sprint"], out["Sprintln"] = fmt.Sprint(thing), fmt.Sprintln(thing)
	j, err := json.Marshal(thing)
	out["json"] = fmt.Sprint(string(j), err)
	y, err := marshalYAML(thing)
	out["yaml"] = fmt.Sprint(string(y), err)
	x, err := xml.Marshal(thing)
	out["xml"] = fmt.Sprint(string(x), err)
	var g bytes.Buffer
	err = gob.NewEncoder(&g).Encode(thing)
	out["gob"] = fmt.Sprint(g.String(), err)
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"slog text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"slog json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		log := slog.New(handler(&b))
		log.Info("x", "thing", thing, slog.Group("g", slog.Any("thing", thing)))
		log.With("thing", thing).Info("y")
		out[name] = b.String()
	}
	return out
}

// marshalYAML turns the panics of yaml for types that it cannot encode into errors.
func marshalYAML(thing any) (text []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return yaml.Marshal(thing)
}

func TestAMaskSaysWhetherThereIsASecretAndNoMore(t *testing.T) {
	for s, want := range map[Secret]string{
		{}: "", NewSecret(""): "", NewSecret("x"): mask,
		NewSecret(strings.Repeat("x", 99)): mask,
	} {
		if got := fmt.Sprintf("%s", s); got != want || s.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
		if text, err := s.MarshalText(); err != nil || string(text) != want {
			t.Errorf("%q %v, want %q", text, err, want)
		}
		if s.IsZero() != (want == "") {
			t.Errorf("IsZero is %v for %q", s.IsZero(), want)
		}
	}
	if got := fmt.Sprintf("%#v %q", NewSecret("x"), Secret{}); got != `"******" ""` {
		t.Error(got)
	}
	if NewSecret("") != (Secret{}) {
		t.Error("an empty secret is none")
	}
}
