package testbed_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMySQLBinlogReadsFromTheServer(t *testing.T) {
	s := testbed.MySQL(t)
	s.Exec(t, "create database seen_in_the_binlog")
	argv, err := testbed.MySQLBinlog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(s.Addr, ":")
	args := append(argv[1:], "--no-defaults", "--read-from-remote-server", "--host="+host, "--port="+port, "--user=root",
		"binlog.000001")
	out, err := exec.CommandContext(t.Context(), argv[0], args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "create database seen_in_the_binlog") {
		t.Fatalf("%v\n%s", err, out)
	}
}
