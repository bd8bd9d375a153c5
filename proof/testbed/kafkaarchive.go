package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// withArchive adds an archive of the classes that a broker loads to Java's flags, and makes it
// first if there is none: reading and verifying them again is a third of a broker's start. Java
// ignores an archive that does not fit.
func (in *installer) withArchive(ctx context.Context, p *program, template string) (*program, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(strings.Join(p.argv, " ")))
	path := filepath.Join(cache, "data", p.name+"-"+p.version+"-"+hex.EncodeToString(sum[:4])+".jsa")
	fast := *p
	fast.argv = slices.Insert(slices.Clone(p.argv), 1, "-XX:SharedArchiveFile="+path)
	if isFile(path) {
		return &fast, nil
	}
	unlock, err := lockCache(ctx, "archive")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if isFile(path) {
		return &fast, nil
	}
	if err := makeArchive(ctx, p, template, path); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		fmt.Fprintf(in.log, "testbed: kafka starts slowly: %v\n", err)
		return p, nil
	}
	return &fast, nil
}

// makeArchive has a broker write what it loaded when it ends.
func makeArchive(ctx context.Context, p *program, template, path string) (err error) {
	c, err := startKafka(ctx, p, template, KafkaOptions{JVM: []string{"-XX:ArchiveClassesAtExit=" + path + ".part"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.brokers[0].Stop(); err != nil {
		return err
	}
	if err := os.Rename(path+".part", path); err != nil {
		return fmt.Errorf("testbed: no archive of classes: %w\n%s", err, c.LogTail())
	}
	return nil
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}
