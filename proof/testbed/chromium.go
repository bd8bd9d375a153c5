package testbed

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// chromiumPackages bring the browser, and letters for it to draw.
const chromiumPackages = "chromium fonts-dejavu-core"

// Chromium returns the path of a Chromium or Chrome that can be driven by its debugging protocol. It is found on PATH,
// else installed.
func Chromium(t testing.TB) string {
	t.Helper()
	path, err := (&installer{log: os.Stderr}).chromium(t.Context())
	Must(t, err)
	return path
}

func (in *installer) chromium(ctx context.Context) (string, error) {
	find := func() (string, bool) {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if p, ok := lookPath(name); ok {
				return p, true
			}
		}
		return "", false
	}
	present := func() bool { _, ok := find(); return ok }
	if err := in.ensure(ctx, in.aptNeed("Chromium", chromiumPackages, present, func(why error) error {
		return fmt.Errorf("testbed: chromium is missing and cannot be installed (%w): put chromium or google-chrome on PATH",
			why)
	})); err != nil {
		return "", err
	}
	path, ok := find()
	if !ok {
		return "", fmt.Errorf("testbed: the packages %s brought no chromium", chromiumPackages)
	}
	return path, nil
}
