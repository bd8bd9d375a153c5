// Command testbed installs the servers that freshet's tests use, or runs them for a human.
//
//	testbed install   finds or installs MySQL, MariaDB with its test suites, Redis, Valkey, Kafka and Prometheus
//	testbed up        starts MySQL, MariaDB, Redis and Kafka, prints their addresses, and ends them on Ctrl-C
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/freshet/freshet/proof/testbed"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 done, 1 failed, 2 usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) == 1 && args[0] == "install":
		err = testbed.Install(ctx, stderr)
	case len(args) == 1 && args[0] == "up":
		err = up(ctx, stdout, stderr)
	default:
		fmt.Fprintln(stderr, "usage: testbed install | up")
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// up runs one server of each kind that freshet works with until the context is cancelled.
func up(ctx context.Context, stdout, stderr io.Writer) (err error) {
	o := testbed.Options{Log: stderr}
	closing := func(c io.Closer) { err = errors.Join(err, c.Close()) }
	my, err := testbed.StartMySQL(ctx, o)
	if err != nil {
		return err
	}
	defer closing(my)
	maria, err := testbed.StartMariaDB(ctx, o)
	if err != nil {
		return err
	}
	defer closing(maria)
	rdb, err := testbed.StartRedis(ctx, o)
	if err != nil {
		return err
	}
	defer closing(rdb)
	kafka, err := testbed.StartKafka(ctx, testbed.KafkaOptions{Log: stderr})
	if err != nil {
		return err
	}
	defer closing(kafka)
	fmt.Fprintf(stdout, "mysql   %s  %s  (root, no password; socket %s)\n", my.Version, my.Addr, my.Socket)
	fmt.Fprintf(stdout, "mariadb %s  %s  (root, no password; socket %s)\n", maria.Version, maria.Addr, maria.Socket)
	fmt.Fprintf(stdout, "redis   %s  %s\n", rdb.Version, rdb.Addr)
	fmt.Fprintf(stdout, "kafka   %s  %s\n", kafka.Version, kafka.Brokers()[0])
	fmt.Fprintln(stdout, "Ctrl-C ends them and removes their data.")
	<-ctx.Done()
	return nil
}
