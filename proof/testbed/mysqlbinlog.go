package testbed

import (
	"context"
	"os"
	"os/exec"
	"strings"
)

// MySQLBinlog returns how to call MySQL's mysqlbinlog, before any option. It is found on PATH, unless that is
// MariaDB's; else it is the one that comes with the testbed's MySQL. Anything that has to be installed is named on
// stderr first.
func MySQLBinlog(ctx context.Context) ([]string, error) {
	if path, ok := lookPath("mysqlbinlog"); ok {
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err == nil && !strings.Contains(string(out), "MariaDB") {
			return []string{path}, nil
		}
	}
	root, err := (&installer{log: os.Stderr}).sidDir(ctx, "mysqlbinlog", EnvMySQL)
	if err != nil {
		return nil, err
	}
	p, err := newProgram(ctx, "mysqlbinlog", append(systemLoader(root), root+"/usr/bin/mysqlbinlog"), nil)
	if err != nil {
		return nil, err
	}
	return p.argv, nil
}
