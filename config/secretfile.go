package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxSecret bounds a file that holds a secret, in bytes.
const maxSecret = 64 << 10

// secretFiles reads each secret whose *_file key is given.
func (l *loader) secretFiles() {
	for _, k := range l.keys {
		file := k.path + "_file"
		if !k.secret || !l.given(file) {
			continue
		}
		at := l.place(file)
		if l.given(k.path) {
			l.fault(at, file, &fault{fmt.Sprintf("%s is given as well (%s)", k.path, l.place(k.path)), "keep one of them"})
			continue
		}
		text, err := readSecret(l.text(file)[0])
		if err != nil {
			l.fault(at, file, &fault{err.Error(), "name a file that holds the secret and nothing else"})
			continue
		}
		k.set(l.config, []string{text})
	}
}

// readSecret returns what a file holds, without the line break that it ends with.
func readSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, cause(err))
	}
	defer f.Close() // read only: nothing is lost
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, cause(err))
	}
	if len(data) > maxSecret {
		return "", fmt.Errorf("%s is larger than %s", file, formatSize(maxSecret))
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", errors.New(file + " is empty")
	}
	return text, nil
}
