package config

import (
	"errors"
	"io/fs"
	"os"

	"github.com/freshet/freshet/config/spec"
)

// configVariable names the file where no flag does.
const configVariable = "FRESHET_CONFIG"

// Find returns the file to load: the one that the flag --config names, else the one that $FRESHET_CONFIG names, else
// ./freshet.yaml, else /etc/freshet/freshet.yaml. A file that is named must exist. The error is [spec.Problems].
func Find(flag string) (string, error) {
	return find(flag, os.Getenv(configVariable), "freshet.yaml", "/etc/freshet/freshet.yaml")
}

func find(flag, variable string, places ...string) (string, error) {
	for _, named := range []struct{ file, by string }{{flag, "--config"}, {variable, "$" + configVariable}} {
		if named.file == "" {
			continue
		}
		if absent(named.file) {
			return "", spec.Problems{{
				Pos: spec.Pos{File: named.file}, What: "there is no such file", Do: "write it, or name another one with " +
					named.by,
			}}
		}
		return named.file, nil
	}
	for _, file := range places {
		if !absent(file) {
			return file, nil
		}
	}
	return "", spec.Problems{{
		What: "there is no configuration file: looked for " + list(places, "and") + " (--config and $" + configVariable +
			" name none)",
		Do: "write one (docs/configuration.md has every key), or name it with --config",
	}}
}

// absent reports whether there is certainly no such file. One that cannot be read is there, and loading says why not.
func absent(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}
