package canal

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/freshet/freshet/event"
)

// firstEvent is where the first event of every binlog file begins, after the magic number.
const firstEvent = 4

// binlogPos is a place in the source's binlog. Its position is counted in 64 bits from the sizes of the events: the
// protocol's own are 32 bits wide and wrap above 4 GiB, and MariaDB from 11.4 leaves them out within transactions.
type binlogPos struct {
	file   string
	number uint32 // of the file
	pos    uint64
}

// binlogPosOf returns the place at a position of a file.
func binlogPosOf(file string, pos uint64) (binlogPos, error) {
	_, n, err := event.SplitFile(file)
	return binlogPos{file, n, pos}, err
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func (p binlogPos) isZero() bool { return p.file == "" }

// compare orders two places of one server's binlog.
func (p binlogPos) compare(o binlogPos) int {
	return cmp.Or(cmp.Compare(p.number, o.number), cmp.Compare(p.pos, o.pos))
}

func (p binlogPos) String() string { return p.file + ":" + strconv.FormatUint(p.pos, 10) }

// reach returns the smallest position that is at least from and whose low 32 bits are low.
func reach(from uint64, low uint32) uint64 { return from + uint64(low-uint32(from)) }

// anyJump lets an event end anywhere but before where it can end, by up to 256 MiB.
const anyJump = 0xf000_0000

// pass moves over an event of the given size that ends at logPos by its own word (0: it does not say). The server
// leaves events out: transactions that we have, in a dump by GTID, and on MariaDB the text of statements. So an event
// may end further on than counted, but never before. limit is how far it may jump; an event that jumps ends no
// earlier than floor, which tells the upper half of its position where the lower one has wrapped.
func (p *binlogPos) pass(size, logPos uint32, floor uint64, limit uint32) error {
	end := p.pos + uint64(size)
	if logPos != 0 && logPos != uint32(end) {
		end = max(end, floor)
		if jump := logPos - uint32(end); jump > limit {
			return fmt.Errorf("%w: at %s, an event of %d bytes says that it ends at %d (modulo 2^32)", errNonsense, p, size,
				logPos)
		}
		end = reach(end, logPos)
	}
	p.pos = end
	return nil
}
