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
	why, purged := "", false
	if i := slices.IndexFunc(files, func(f BinlogFile) bool { return f.Name == p.File }); i < 0 {
		why, purged, err = goneFile(p, files)
	} else if known.file == p.File {
		why, err = o.bornAgain(ctx, info, known)
	}
	if err != nil || why == "" || purged && !info.GTID {
		return err
	}
	if info.GTID {
		before, err := s.before(info, files[0].Name)
		if err != nil {
			return err
		}
		after := p.GTIDs.Subtract(&before)
		if purged {
			after = info.own(&after)
		}
		if after.IsEmpty() { // a source that gets its GTIDs back goes on where it was
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

// goneFile says why the source has no file by the name of the position's any more. If it was purged, all that was read
// was in files that are gone, so what is left begins with that. Else the numbers were given out again.
func goneFile(p *event.Position, files []BinlogFile) (why string, purged bool, err error) {
	_, newest, err := event.SplitFile(files[len(files)-1].Name)
	_, read, failed := event.SplitFile(p.File)
	if err = errors.Join(err, failed); err != nil {
		return "", false, err
	}
	if newest >= read {
		return p.File + " was purged, and " + files[0].Name + " does not begin with all that was read before", true, nil
	}
	return "there is none by the name of " + p.File + " any more, and the newest one is " + files[len(files)-1].Name,
		false, nil
}

// bornAgain says that a file was begun at another time than is known; "": it was not.
func (o *Options) bornAgain(ctx context.Context, info *SourceInfo, known birth) (why string, err error) {
	t, err := o.begun(ctx, info, known.file)
	if err != nil || t.Unix() == int64(known.at) {
		return "", err
	}
	return fmt.Sprintf("%s was begun at %s, and the file of that name that was read at %s", known.file,
		t.UTC().Format(time.RFC3339), time.Unix(int64(known.at), 0).UTC().Format(time.RFC3339)), nil
}

// before returns the transactions before the oldest binlog file. That may be another one by now: files may be purged at
// any time.
func (s *session) before(info *SourceInfo, oldest string) (set event.GTIDSet, err error) {
	if info.Flavor == event.MySQL {
		now := *info
		err = s.mysqlGTIDs(&now)
		return now.Purged, err
	}
	for {
		if set, err = s.gtidPos(binlogPos{file: oldest, pos: firstEvent}); err != nil {
			return set, err
		}
		files, err := s.binlogFiles()
		if err != nil || len(files) == 0 || files[0].Name == oldest {
			return set, err
		}
		oldest = files[0].Name
	}
}

// own returns those of a set that got their numbers from this server.
func (info *SourceInfo) own(set *event.GTIDSet) (own event.GTIDSet) {
	uuid, _ := event.ParseUUID(info.Server) // none on MariaDB
	set.Each(func(r event.GTIDRange) {
		if info.Flavor == event.MariaDB && r.First.Server == info.ServerID ||
			info.Flavor == event.MySQL && r.First.UUID == uuid {
			own.AddRange(r)
		}
	})
	return own
}
