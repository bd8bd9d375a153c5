package canal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/freshet/freshet/event"
)

// birth says when a binlog file was begun, by the source's clock, in seconds: what its first event says, and what the
// server says of it at the beginning of each stream. A source that deletes its binlog (RESET BINARY LOGS AND GTIDS,
// RESET MASTER), or is restored without it, begins again with the same names of files, and gives GTIDs out again. Once
// the new files are longer than the old ones, nothing else tells them apart.
type birth struct {
	file string
	at   uint32
}

// begunMark begins a state that says when the position's file was begun.
const begunMark = "begun "

// join puts it before a state.
func (b birth) join(state []byte) []byte {
	if b.at == 0 {
		return state
	}
	return append(fmt.Appendf(nil, "%s%d %s\n", begunMark, b.at, b.file), state...)
}

// splitBegun takes apart what join put together.
func splitBegun(state []byte) (b birth, rest []byte, err error) {
	line, marked := bytes.CutPrefix(state, []byte(begunMark))
	if !marked {
		return b, state, nil
	}
	line, rest, _ = bytes.Cut(line, []byte("\n"))
	at, file, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.ParseUint(string(at), 10, 32)
	if err != nil {
		return b, nil, fmt.Errorf("the time of the binlog file in the checkpoint: %w", err)
	}
	return birth{string(file), uint32(n)}, rest, nil
}

// checkBegun returns a [*GapError] if the source has begun its binlog again since p, and its GTIDs with it. known says
// when a file was begun, which counts if it is that of p.
func (o *Options) checkBegun(ctx context.Context, s *session, info *SourceInfo, p *event.Position, known birth) error {
	if p.File == "" || p.Server != info.Server {
		return nil
	}
	files, err := s.binlogFiles()
	if err != nil || len(files) == 0 {
		return err
	}
	why := ""
	switch i := slices.IndexFunc(files, func(f BinlogFile) bool { return f.Name == p.File }); {
	case i < 0:
		_, newest, err := event.SplitFile(files[len(files)-1].Name)
		_, read, failed := event.SplitFile(p.File)
		if err = errors.Join(err, failed); err != nil || newest >= read {
			return err // it was purged
		}
		why = "there is none by the name of " + p.File + " any more, and the newest one is " + files[len(files)-1].Name
	case known.file == p.File:
		t, err := o.begun(ctx, info, p.File)
		if err != nil || t.Unix() == int64(known.at) {
			return err
		}
		why = fmt.Sprintf("%s was begun at %s, and the file of that name that was read at %s", p.File,
			t.UTC().Format(time.RFC3339),
			time.Unix(int64(known.at), 0).UTC().Format(time.RFC3339))
	}
	if why == "" {
		return nil
	}
	if info.GTID {
		// A source that gets its GTIDs back goes on where it was.
		before := info.Purged
		if info.Flavor == event.MariaDB {
			if before, err = s.gtidPos(binlogPos{file: files[0].Name, pos: firstEvent}); err != nil {
				return err
			}
		}
		if after := p.GTIDs.Subtract(&before); after.IsEmpty() {
			return nil
		}
	}
	return &GapError{
		Position: *p, Oldest: files[0].Name, Fix: fixPurged,
		Reason: "the source has begun its binlog again (RESET BINARY LOGS AND GTIDS, RESET MASTER, or it was restored " +
			"without it), " +
			"and may have given numbers of transactions that were read to others: " + why,
	}
}
