package app

import (
	"time"

	"github.com/freshet/freshet/canal/walk"
)

// The bounds of a chunk.
const (
	// firstRows is how many rows the first chunk has, and mostRows how many one has at most. It has no fewer than fewRows
	// because somebody is slow: so many cost the source one look-up and Redis one round trip, as fewer do.
	firstRows, mostRows, fewRows = 100, 5000, 10
	// chunkBytes is about how large the rows of a chunk are together at most.
	chunkBytes = 1 << 20
	// chunkTime is how long the source should take for the rows of a chunk at most, and walkRests how many times as long
	// as it took for the chunk it is left alone afterwards.
	chunkTime = 100 * time.Millisecond
	walkRests = 4
	// leastLasts and mostLasts bound how long it should take until the keys of a chunk have been handed out.
	leastLasts, mostLasts = 25 * time.Millisecond, 250 * time.Millisecond
)

// chunkLasts returns how long that should take where d is the shortest second delete. A value is as old as its chunk,
// and what waits for longer than D/2 is not written. Each chunk of a warm-up costs a write of how far it is.
func chunkLasts(d time.Duration) time.Duration { return min(max(d/8, leastLasts), mostLasts) }

// walkPace settles how many rows the next chunk has, and when it is read: by how long the source took for the last one,
// and by how long its keys lasted, be it for the rate or because Redis takes no more.
//
// Only what the rows cost counts. A busy machine and a long way take their time whatever is asked, and chunks that
// became smaller for that would read next to nothing, with as many statements. So after a chunk that took long one row
// is read, once the source has had its rest: what that takes is not for the rows.
type walkPace struct {
	rows int
	// least is how many rows a chunk has at least. lasts is how long its keys should last.
	least int
	lasts time.Duration
	// rested is until when the source is left alone.
	rested time.Time
	// begun is when the chunk was read whose keys are being handed out, and of how many rows it was; the zero time: there
	// is none.
	begun time.Time
	had   int
	// fits is of how many rows the keys would have lasted long enough.
	fits int
	// slow is how long a chunk took of which it is not known yet whether its rows cost that; 0: it is known of all.
	slow time.Duration
	// alone is how long it took to hand out a row that was read alone, for the last time.
	alone time.Duration
}

// newWalkPace returns the pace for values with a second delete after d or later, at so many keys a second.
func newWalkPace(d time.Duration, rate int) walkPace {
	lasts := chunkLasts(d)
	atOnce := max(1, int(float64(rate)*lasts.Seconds())) // if each row has a key
	return walkPace{rows: min(firstRows, atOnce), least: min(fewRows, atOnce), lasts: lasts, fits: mostRows}
}

// next returns how many rows the next chunk has.
func (p *walkPace) next() int {
	if p.slow > 0 {
		return 1
	}
	return p.rows
}

// read takes note of the next chunk, for which the source took so long, and whose keys are about to be handed out.
func (p *walkPace) read(took time.Duration, got *walk.Chunk) {
	p.begun, p.had = time.Now(), p.next()
	p.rested = p.begun.Add(walkRests * took)
	switch {
	case p.slow > 0:
		p.cost(p.slow - took)
		p.slow, p.had = 0, 0
		p.rows = min(p.rows, p.fits)
	case took > chunkTime && p.rows > 1:
		p.slow = took
	default:
		p.cost(took)
	}
	if got.Bytes > chunkBytes && p.had > 0 {
		p.had = got.Rows // it was cut short
		p.rows = min(p.rows, got.Rows*chunkBytes/got.Bytes)
	}
	p.bound()
}

// cost takes note of what the rows of a chunk have cost the source.
func (p *walkPace) cost(took time.Duration) {
	switch {
	case took > chunkTime:
		p.rows /= 2
	case took < chunkTime/2:
		p.rows *= 2
	}
	p.bound()
}

// handedOut takes note that the keys of the chunk that was read have had their time.
func (p *walkPace) handedOut() {
	if p.begun.IsZero() {
		return
	}
	lasted := time.Since(p.begun)
	p.begun = time.Time{}
	if p.had == 0 {
		p.alone = lasted
		return
	}
	p.fits = mostRows
	// What is not for the rows may last as long again. If it lasts longer, the values are too old soon.
	if lasted -= min(p.alone, p.lasts); lasted > 0 {
		p.fits = int(float64(p.had) * p.lasts.Seconds() / lasted.Seconds())
	}
	p.rows = min(p.rows, p.fits)
	p.bound()
}

// failed takes note that the source did not answer.
func (p *walkPace) failed() {
	p.rows /= 2
	p.bound()
}

func (p *walkPace) bound() { p.rows = min(max(p.rows, p.least), mostRows) }
