package credential

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// readFile returns what a file holds, without the line break that it ends with.
func readFile(path string) (string, error) {
	data, err := Content(path, MaxSize)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	text := withoutBreak(string(data))
	if text == "" {
		return "", errors.New(path + ": is empty")
	}
	return text, nil
}

// Content returns what a plain file holds, if that is no more than most bytes, a multiple of 1 KiB. The error does not
// name the file. Who exchanges it for something else can neither hold the reader up nor take its memory.
func Content(path string, most int64) ([]byte, error) {
	// To open a pipe would wait for who writes to it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Cause(err)
	}
	defer f.Close() // read only: nothing is lost
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, Cause(err)
	case info.IsDir():
		return nil, errors.New("is a directory")
	case !info.Mode().IsRegular(): // it cannot be read twice, or has no end
		return nil, errors.New("is not a regular file, which could be read more than once")
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, Cause(err)
	case int64(len(data)) > most:
		return nil, fmt.Errorf("is larger than %s", size(most))
	}
	return data, nil
}

// size is so many bytes in words.
func size(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}

// withoutBreak takes off the line break that files and output end with.
func withoutBreak(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r") }

// Cause takes the operation and the path, which the message has already, off an error of package os.
func Cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
