package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// nginxPackage is the Debian package that holds nginx.
const nginxPackage = "nginx"

// Nginx returns the path of nginx. It is found on PATH, else unpacked in the cache directory, where it is brought if
// need be.
func Nginx(t testing.TB) string {
	t.Helper()
	path, err := (&installer{log: os.Stderr}).nginx(t.Context())
	Must(t, err)
	return path
}

func (in *installer) nginx(ctx context.Context) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "nginx")
	find := func() (string, bool) {
		if p, ok := lookPath("nginx"); ok {
			return p, true
		}
		unpacked := filepath.Join(dir, "usr", "sbin", "nginx")
		_, err := os.Stat(unpacked)
		return unpacked, err == nil
	}
	if err := in.ensure(ctx, need{
		what:    "nginx (apt-get download " + nginxPackage + ", into " + dir + ")",
		present: func() bool { _, ok := find(); return ok },
		can:     canInstall,
		install: func(ctx context.Context) error { return in.unpack(ctx, dir, nginxPackage) },
		missing: func(why error) error {
			return fmt.Errorf("testbed: nginx is missing and cannot be installed (%w): put nginx on PATH", why)
		},
	}); err != nil {
		return "", err
	}
	path, ok := find()
	if !ok {
		return "", fmt.Errorf("testbed: the package %s brought no nginx", nginxPackage)
	}
	return path, nil
}
