package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/proof/testbed"
)

func TestADetourDeliversEachCommandOnceAndInOrder(t *testing.T) {
	broker := testbed.Kafka(t).Brokers()[0]
	if err := makeTopic(t.Context(), broker, "detour"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d, err := newDetour(ctx, broker, "detour")
	if err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	out, in := io.Pipe()
	g.Go(d.produce)
	g.Go(func() error { return d.deliver(in) })
	var want bytes.Buffer
	for i := range 5 * gatheredMost { // more than are under way at a time
		fmt.Fprintf(&want, "command %d;", i)
		if _, err := fmt.Fprintf(d, "command %d;", i); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(out, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("%v; %d bytes came out, not those that went in", err, len(got))
	}
	cancel() // as the end of the process does
	if err := errors.Join(out.Close(), g.Wait()); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("it ended with %v", err)
	}
	for range gatheredMost + 1 { // there is room for some: they are lost with the process
		if _, err = d.Write([]byte("late")); err != nil {
			return
		}
	}
	t.Fatal("it takes commands forever after its end")
}

func TestRecordsBeforeTheOffsetThatWasAskedForArePassedOver(t *testing.T) {
	var batch []protocol.Record
	for i := range 4 {
		batch = append(batch, protocol.Record{Offset: int64(7 + i), Value: protocol.NewBytes([]byte{'a' + byte(i)})})
	}
	commands, next, err := commandsOf(protocol.NewRecordReader(batch...), nil, 9)
	if string(commands) != "cd" || next != 11 || err != nil {
		t.Fatalf("%q, then from %d on: %v", commands, next, err)
	}
	if commands, next, err = commandsOf(nil, commands[:0], 11); len(commands) > 0 || next != 11 || err != nil {
		t.Fatalf("of an empty answer %q, then from %d on: %v", commands, next, err)
	}
}
