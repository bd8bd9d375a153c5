package broker

import (
	"strconv"
	"strings"
	"time"
)

// WorkedOn says on which Redis a group has done what it commits. It stands at the end of the metadata of a commit:
//
//	freshet1;…;redis,NAME,MILLISECONDS
//
// A freshet that does not know this passes it over.
type WorkedOn struct {
	// Redis is its name, of at most 950 bytes without commas and semicolons; "": nobody has said it.
	Redis string
	// At is when the commit was sent, by the clock of the process that sent it.
	At time.Time
}

const workedOnPart = ";redis,"

// MaxWorkedOn is how much room there is for it in the metadata of a commit, in bytes.
const MaxWorkedOn = 1024

// AddTo returns the metadata of a commit with it.
func (w WorkedOn) AddTo(metadata string) string {
	if w.Redis == "" {
		return metadata
	}
	return metadata + workedOnPart + w.Redis + "," + strconv.FormatInt(w.At.UnixMilli(), 10)
}

// CutWorkedOn returns the metadata of a commit without it, and what it says.
func CutWorkedOn(metadata string) (rest string, w WorkedOn) {
	i := strings.LastIndex(metadata, workedOnPart)
	if i < 0 {
		return metadata, w
	}
	name, at, _ := strings.Cut(metadata[i+len(workedOnPart):], ",")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || name == "" || strings.ContainsAny(name, ",;") {
		return metadata, w // another program has written it
	}
	return metadata[:i], WorkedOn{name, time.UnixMilli(ms)}
}
