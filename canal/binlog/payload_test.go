package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// unfold calls each for every event of a TRANSACTION_PAYLOAD.
func unfold(d *Decoder, body []byte, each func(h Header, body []byte) error) error {
	p, err := d.Payload(body)
	if err != nil {
		return err
	}
	return p.Each(each)
}

// atOnce is the whole of a payload, unfolded at once by other code: its events, up to what is damaged.
func atOnce(body []byte) (events [][]byte, whole bool) {
	compression, all := uint64(compressionZstd), unknownSize
	c := cursor{b: body}
	for field := c.u8(); field != payloadEnd && !c.bad; field = c.u8() {
		v := cursor{b: c.bytes(c.size())}
		switch field {
		case payloadCompression:
			compression = v.packed()
		case payloadUncompressed:
			all = v.packed()
		}
	}
	data := c.rest()
	if compression == compressionZstd {
		z, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			panic(err)
		}
		defer z.Close()
		if data, err = z.DecodeAll(data, nil); err != nil {
			return nil, false
		}
	}
	for len(data) > 0 {
		if len(data) < HeaderSize {
			return events, false
		}
		size := uint64(binary.LittleEndian.Uint32(data[9:]))
		if size < HeaderSize || size > uint64(len(data)) || size > all {
			return events, false
		}
		if all != unknownSize {
			all -= size
		}
		events = append(events, data[:size])
		data = data[size:]
	}
	return events, all == 0 || all == unknownSize
}

// partOf takes up to n events of a payload, with a call of the decoder between any two, and leaves it.
func partOf(t testing.TB, d *Decoder, body []byte, n int) (events [][]byte, err error) {
	p, err := d.Payload(body)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	for range n {
		h, body, err := p.Next()
		if err != nil {
			return events, err
		}
		if int(h.Size) != HeaderSize+len(body) {
			t.Fatalf("an event of %d bytes has a body of %d", h.Size, len(body))
		}
		events = append(events, bytes.Clone(p.buf))
		// What a caller does with it, which may fail, moves nothing.
		var c event.Change
		switch {
		case h.Type == TypeTableMap:
			_ = d.TableMap(body)
		case h.Type.IsRows():
			_ = d.Rows(h, body, &c, func(*event.Change) error { return nil })
		case h.Type == TypeTransactionPayload:
			if _, err := d.Payload(body); !errors.Is(err, ErrDamaged) {
				t.Fatalf("a payload within another: %v", err)
			}
		}
	}
	return events, nil
}

// checkPayload leaves the payload after each number of events, and begins it again.
func checkPayload(t testing.TB, d *Decoder, body []byte) {
	want, whole := atOnce(body)
	for n := range min(len(want), 20) + 2 {
		if n > min(len(want), 20) {
			n = len(want) + 1 // all, and the end
		}
		got, err := partOf(t, d, body, n)
		if len(got) == 0 && errors.Is(err, ErrDamaged) && n > 0 && (len(want) == 0 || !whole) {
			continue // its fields, or its first event
		}
		if whole && err != nil && err != io.EOF || len(got) > len(want) || whole && len(got) != min(n, len(want)) {
			t.Fatalf("%d events of %d, whole %v: %d, %v", n, len(want), whole, len(got), err)
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("event %d is %x, want %x", i, got[i], want[i])
			}
		}
		if d.payload.open {
			t.Fatal("it is open after it was left")
		}
		if n == len(want)+1 && whole && err != io.EOF {
			t.Fatalf("after the last event: %v", err)
		}
	}
}

// somePayload is a compressed transaction of so many rows events.
func somePayload(t testing.TB, events int) []byte {
	var one maker
	one.begin(1)
	one.productMap()
	for i := range events {
		one.productRows(TypeWriteRowsV2, 85*i, 85)
	}
	one.commit()
	return packed(t, &one).events[1][HeaderSize:]
}

func TestAPayloadCanBeLeftAtAnyEventAndContinued(t *testing.T) {
	for _, events := range []int{0, 1, 7, 100} {
		checkPayload(t, primed(t, false), somePayload(t, events))
	}
}

// A frame with the window of the highest level takes that much memory only until it is taken apart, or left.
func TestADecompressorThatIsTooLargeToKeepIsFreedWhereThePayloadIsLeft(t *testing.T) {
	var one maker
	one.begin(1)
	one.productMap()
	for i := range 10 {
		one.productRows(TypeWriteRowsV2, 85*i, 85)
	}
	one.commit()
	var frame bytes.Buffer
	z, err := zstd.NewWriter(&frame, zstd.WithWindowSize(4*keepWindow), zstd.WithSingleSegment(false))
	testbed.Must(t, err)
	_, err = z.Write(bytes.Join(one.events, nil))
	testbed.Must(t, err)
	testbed.Must(t, z.Flush()) // so that the encoder does not know that it is small
	testbed.Must(t, z.Close())
	body := append([]byte{payloadEnd}, frame.Bytes()...)
	d := primed(t, false)
	for n := range len(one.events) + 2 {
		got, err := partOf(t, d, body, n)
		if len(got) != min(n, len(one.events)) || err != nil && err != io.EOF {
			t.Fatalf("%d events: %d, %v", n, len(got), err)
		}
		if d.payload.zstd != nil {
			t.Fatalf("the decompressor is kept after %d events", n)
		}
	}
}

func TestAResetLeavesThePayload(t *testing.T) {
	d := primed(t, false)
	p, err := d.Payload(somePayload(t, 3))
	testbed.Must(t, err)
	_, _, err = p.Next()
	testbed.Must(t, err)
	d.Reset()
	if _, _, err := p.Next(); err != io.EOF {
		t.Fatalf("%v, want the end", err)
	}
	checkPayload(t, d, somePayload(t, 3))
}

func FuzzPayload(f *testing.F) {
	f.Add(somePayload(f, 1))
	f.Add(somePayload(f, 10))
	f.Add(append([]byte{payloadCompression, 1, compressionNone, payloadEnd}, "none"...))
	f.Fuzz(func(t *testing.T, body []byte) { checkPayload(t, primed(t, false), body) })
}
