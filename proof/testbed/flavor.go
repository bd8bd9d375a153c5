package testbed

import (
	"context"
	"os"
)

// mysqlSmall and mariaDBSmall make data directories small and quick to copy. They apply to
// making one and to running on it.
var (
	mysqlSmall   = []string{"--innodb-redo-log-capacity=32M"}
	mariaDBSmall = []string{"--innodb-log-file-size=32M"}
)

// mysqlDefaults turn on what freshet wants (GTIDs) and save memory and disk writes. What they
// leave out is left at the server's default. Commits still survive kill -9, if not a power
// cut, and sync_binlog stays at 1, since it decides when a binlog event is sent.
var mysqlDefaults = append([]string{
	"--mysqlx=OFF", "--secure-file-priv=",
	"--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-bin=binlog",
	"--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=OFF",
	"--innodb-log-buffer-size=8M",
	// The performance schema counts by user, by kind of error, of memory and of statement at a fifth of the cost of a
	// start: that much memory it clears. Its threads and variables stay.
	"--performance-schema-users-size=0", "--performance-schema-hosts-size=0", "--performance-schema-accounts-size=0",
	"--performance-schema-error-size=0", "--performance-schema-max-memory-classes=0",
	"--performance-schema-digests-size=0",
	// It keeps room for as many tables as can be open.
	"--table-open-cache=200", "--table-definition-cache=400",
}, mysqlSmall...)

// mariaDBDefaults are the same for MariaDB, with row events, which are not its default.
var mariaDBDefaults = append([]string{
	"--log-bin=binlog", "--binlog-format=ROW",
	"--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=OFF",
}, mariaDBSmall...)

// StartMySQL starts a MySQL server. Close ends it.
func StartMySQL(ctx context.Context, o Options) (*Server, error) {
	if address := os.Getenv(EnvMySQL); o.Shared && address != "" {
		return sharedServer(ctx, FlavorMySQL, address)
	}
	p, err := o.installer().mysql(ctx)
	if err != nil {
		return nil, err
	}
	return startServer(ctx, FlavorMySQL, p, mysqlDefaults, o)
}

// StartMariaDB starts a MariaDB server. Close ends it.
func StartMariaDB(ctx context.Context, o Options) (*Server, error) {
	if address := os.Getenv(EnvMariaDB); o.Shared && address != "" {
		return sharedServer(ctx, FlavorMariaDB, address)
	}
	p, err := o.installer().mariadb(ctx)
	if err != nil {
		return nil, err
	}
	return startServer(ctx, FlavorMariaDB, p, mariaDBDefaults, o)
}
