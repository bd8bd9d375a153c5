package main

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/freshet/freshet/deploy/examples/localcache"
)

// purger removes the files of pages. nginx keeps a page in a file that is named by the MD5 of its key; a page whose
// file is gone is fetched again. It is the handler of its follower, and used by one goroutine.
type purger struct {
	dir      string
	key      *regexp.Regexp
	page     string
	state    string
	follower *localcache.Follower
	// failed ends the program: once it is started again, it reads once more what came since the position was saved.
	failed func(error)
	broken bool
	saved  string
}

// Changed implements [localcache.Handler].
func (p *purger) Changed(key string) {
	if p.key.MatchString(key) {
		p.remove(p.file(p.key.ReplaceAllString(key, p.page)))
	}
}

// file returns where nginx keeps the page of a key: levels=1:2 is the last digit of the MD5, then the two before it.
func (p *purger) file(key string) string {
	sum := md5.Sum([]byte(key))
	name := hex.EncodeToString(sum[:])
	return filepath.Join(p.dir, name[31:], name[29:31], name)
}

func (p *purger) remove(file string) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.fail(err)
	}
}

func (p *purger) fail(err error) {
	p.broken = true
	p.failed(err)
}

var cached = regexp.MustCompile(`^[0-9a-f]{32}(\.[0-9]+)?$`)

// Lost implements [localcache.Handler]: it removes every page, and nothing that is not one.
func (p *purger) Lost() {
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // nginx removed it meanwhile, or has none yet
		}
		if err == nil && d.Type().IsRegular() && cached.MatchString(d.Name()) {
			p.remove(path)
		}
		return err
	})
	if err != nil {
		p.fail(fmt.Errorf("remove all pages: %w", err))
	}
}

// Current implements [localcache.Handler]: it saves how far the stream was read. After a crash what came since is
// removed once more.
func (p *purger) Current(time.Time) {
	last := p.follower.Last
	if p.broken || last == p.saved {
		return
	}
	part := p.state + ".part"
	if err := errors.Join(os.WriteFile(part, []byte(last+"\n"), 0o644), os.Rename(part, p.state)); err != nil {
		p.fail(fmt.Errorf("save the position: %w", err))
		return
	}
	p.saved = last
}

// last returns the id that was saved; empty: none, so everything is removed and what comes from now on is read.
func (p *purger) last() string {
	text, err := os.ReadFile(p.state)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
