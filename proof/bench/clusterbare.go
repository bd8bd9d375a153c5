package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

// bareCluster is bare for a cluster: each key goes to its master, in pipelines of single UNLINKs, for the keys of one
// command would have to share a slot.
func (c *cluster) bare(ctx context.Context, source *testbed.Server, rows int) (time.Duration, error) {
	w := &nodeWriters{of: c.of}
	for range c.masters {
		w.nodes = append(w.nodes, &nodeWriter{full: make(chan batchOfNode, 4), empty: make(chan []byte, 8)})
	}
	run := func(ctx context.Context, g *errgroup.Group) {
		for i, s := range c.masters {
			for range bareWriters {
				g.Go(func() error { return w.nodes[i].unlinkAll(ctx, s.Addr) })
			}
		}
	}
	return bareTo(ctx, source, w, run, rows)
}

// nodeWriters spreads keys over the masters.
type nodeWriters struct {
	of    func(key string) int
	nodes []*nodeWriter
}

// nodeWriter is the way to the goroutines that write to one master.
type nodeWriter struct {
	next  batchOfNode
	full  chan batchOfNode
	empty chan []byte
}

// batchOfNode is commands as they are sent.
type batchOfNode struct {
	text     []byte
	commands int
}

// send implements keySink.
func (w *nodeWriters) send(ctx context.Context, keys []string, n int) ([]string, error) {
	if len(keys) < n && n > 1 {
		return keys, nil
	}
	for _, k := range keys {
		node := w.nodes[w.of(k)]
		node.add(k)
		if node.next.commands == bareBatch {
			if err := node.flush(ctx); err != nil {
				return nil, err
			}
		}
	}
	if n == 1 { // they are the last
		for _, node := range w.nodes {
			if err := node.flush(ctx); err != nil {
				return nil, err
			}
		}
	}
	return keys[:0], nil
}

func (w *nodeWriters) close() {
	for _, node := range w.nodes {
		close(node.full)
	}
}

func (w *nodeWriter) add(key string) {
	b := append(w.next.text, "*2\r\n$6\r\nUNLINK\r\n$"...)
	b = strconv.AppendInt(b, int64(len(key)), 10)
	b = append(b, "\r\n"...)
	b = append(b, key...)
	w.next.text = append(b, "\r\n"...)
	w.next.commands++
}

func (w *nodeWriter) flush(ctx context.Context) error {
	select {
	case w.full <- w.next:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("a writer gave up"))
	}
	w.next = batchOfNode{}
	select {
	case w.next.text = <-w.empty:
	default:
	}
	return nil
}

// unlinkAll writes one pipeline after the other over a connection of its own, and reads the replies of each: 0 or 1.
func (w *nodeWriter) unlinkAll(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in := bufio.NewReader(conn)
	replies := make([]byte, bareBatch*len(":1\r\n"))
	for p := range w.full {
		if _, err := conn.Write(p.text); err != nil {
			return err
		}
		got := replies[:p.commands*len(":1\r\n")]
		if _, err := io.ReadFull(in, got); err != nil {
			return err
		}
		for i := 0; i < len(got); i += len(":1\r\n") {
			if got[i] != ':' {
				return fmt.Errorf("redis: %q", got[i:])
			}
		}
		select {
		case w.empty <- p.text[:0]:
		default:
		}
	}
	return nil
}
