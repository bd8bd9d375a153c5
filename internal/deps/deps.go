//go:build deps

// Package deps holds the pinned dependencies while the parts that use them are being written.
package deps

import (
	_ "github.com/alicebob/miniredis/v2"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/expr-lang/expr"
	_ "github.com/go-mysql-org/go-mysql/client"
	_ "github.com/go-mysql-org/go-mysql/replication"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/prometheus/client_golang/prometheus/testutil/promlint"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/viper"
	_ "go.etcd.io/bbolt"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/text/encoding/simplifiedchinese"
	_ "pgregory.net/rapid"
)
