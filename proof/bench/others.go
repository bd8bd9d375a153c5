package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// othersSection compares with what users have without freshet: their own consumer, over go-mysql with its defaults. The
// limits are the dump taken and thrown away, and the dump written to a file by MySQL's own program.
func (b *benchmark) othersSection() *section {
	l := backlog{changes: b.workload.changes(), source: b.mysql}
	return &section{
		name: "others", title: "catching up with MySQL, compared with other ways and the dump alone, Redis holding the keys",
		contenders: []*contender{
			l.bare(),
			l.freshet("freshet, second_delete none", setting{}, ""),
			l.homeMade(),
			l.discarded(),
			l.mysqlbinlog(),
		},
		rounds: 3,
	}
}

// homeMade is a consumer as teams write it: go-mysql's BinlogSyncer with all its decoding, and then what the bare probe
// does, multi-key UNLINK over two connections.
func (l backlog) homeMade() *contender {
	return l.contender("go-mysql and UNLINK",
		func(ctx context.Context, b *benchmark, source *testbed.Server) ([]measure, error) {
			before, start := ownCPU(), time.Now()
			if err := homeMade(ctx, source, b.redis.Addr, l.changes); err != nil {
				return nil, err
			}
			return l.measures(float64(l.changes)/time.Since(start).Seconds(), ownCPU()-before, bareName, ""), nil
		})
}

// homeMade reads the binlog from its first file until it has seen so many rows, and all their keys are deleted.
func homeMade(ctx context.Context, source *testbed.Server, target string, rows int) error {
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: dumpServer, Flavor: string(source.Flavor), Host: "127.0.0.1", Port: uint16(source.Port), User: source.User,
		Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	stream, err := syncer.StartSync(mysql.Position{Name: firstFile, Pos: 4})
	if err != nil {
		return err
	}
	w := newKeyWriters()
	g, ctx := errgroup.WithContext(ctx)
	for range bareWriters {
		g.Go(func() error { return w.unlinkAll(ctx, target) })
	}
	g.Go(func() error {
		defer close(w.full)
		var keys []string
		for seen := 0; seen < rows; {
			e, err := stream.GetEvent(ctx)
			if err != nil {
				return err
			}
			r, ok := e.Event.(*replication.RowsEvent)
			if !ok || string(r.Table.Schema) != "shop" || string(r.Table.Table) != "product" {
				continue
			}
			step := 1
			if t := e.Header.EventType; t == replication.UPDATE_ROWS_EVENTv1 || t == replication.UPDATE_ROWS_EVENTv2 {
				step = 2 // the images before and after; the id stays the same
			}
			for i := 0; i < len(r.Rows); i += step {
				id, ok := r.Rows[i][0].(int64)
				if !ok {
					return errors.New("the id is not an int64")
				}
				keys = append(keys, "product:"+strconv.FormatInt(id, 10))
				seen++
			}
			if keys, err = w.send(ctx, keys, bareBatch); err != nil {
				return err
			}
		}
		_, err := w.send(ctx, keys, 1)
		return err
	})
	return g.Wait()
}

// discarded is the dump taken off the connection and thrown away: no reader can be faster. It deletes nothing.
func (l backlog) discarded() *contender {
	return &contender{name: "the dump, thrown away", run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		source, err := l.source(ctx)
		if err != nil {
			return nil, err
		}
		before := ownCPU()
		took, err := discard(ctx, source)
		if err != nil {
			return nil, err
		}
		return l.measures(float64(l.changes)/took.Seconds(), ownCPU()-before, bareName, ""), nil
	}}
}

// mysqlbinlog is the dump written to files by MySQL's own program. It deletes nothing.
func (l backlog) mysqlbinlog() *contender {
	return &contender{name: "mysqlbinlog --raw", run: func(ctx context.Context, b *benchmark) ([]measure, error) {
		source, err := l.source(ctx)
		if err != nil {
			return nil, err
		}
		argv, err := testbed.MySQLBinlog(ctx)
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp(b.dir, "raw")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		argv = append(argv, "--no-defaults", "--read-from-remote-server", "--host=127.0.0.1", "--port="+
			strconv.Itoa(source.Port),
			"--user="+source.User, "--raw", "--result-file="+dir+"/", "--to-last-log", firstFile)
		cmd, start := exec.CommandContext(ctx, argv[0], argv[1:]...), time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("mysqlbinlog: %w\n%s", err, out)
		}
		m := l.measures(float64(l.changes)/time.Since(start).Seconds(), usedCPU(cmd), bareName, "")
		return m, sameSize(ctx, source, dir)
	}}
}

// sameSize is nil if the directory holds as many bytes as the source's binlogs.
func sameSize(ctx context.Context, source *testbed.Server, dir string) error {
	rows, err := source.DB().QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var file, encrypted string
		var size int64
		if err := rows.Scan(&file, &size, &encrypted); err != nil {
			return err
		}
		fi, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if fi.Size() != size {
			return fmt.Errorf("%w: %s has %d bytes, and its copy has %d", errInvalid, file, size, fi.Size())
		}
	}
	return rows.Err()
}
