package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet/freshet/config/spec"
)

func TestFindLooksInOrder(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flag, variable, here, etc := file("flag"), file("variable"), file("here"), file("etc")
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		flag, variable string
		places         []string
		want, err      string
	}{
		{flag, variable, []string{here, etc}, flag, ""},
		{"", variable, []string{here, etc}, variable, ""},
		{"", "", []string{here, etc}, here, ""},
		{"", "", []string{none, etc}, etc, ""},
		{none, variable, []string{here, etc}, "", none +
			": there is no such file: write it, or name another one with --config"},
		{"", none, []string{here, etc}, "", none +
			": there is no such file: write it, or name another one with $FRESHET_CONFIG"},
		{"", "", []string{none, none + "2"}, "", "there is no configuration file: looked for " + none + " and " + none +
			"2 (--config and $FRESHET_CONFIG name none): write one"},
	} {
		got, err := find(c.flag, c.variable, c.places...)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%+v: %q %v", c, got, err)
		}
		if ps := (spec.Problems{}); err != nil && !errors.As(err, &ps) {
			t.Errorf("%+v: %T is not Problems", c, err)
		}
	}
}

func TestFindTakesTheFileOfTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("freshet.yaml", []byte(minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := Find("")
	if err != nil || file != "freshet.yaml" {
		t.Fatal(file, err)
	}
	if c, err := Load(file); err != nil || c.File != "freshet.yaml" {
		t.Error(c, err)
	}
	t.Setenv("FRESHET_CONFIG", "elsewhere.yaml")
	if file, err := Find(""); err == nil {
		t.Error(file)
	}
}
