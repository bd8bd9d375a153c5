package event

import "time"

// Mark is the statement "every change of mine up to this version could be read by everybody when I was made". It
// travels alongside the data. A mark covers records of its own and earlier terms only.
type Mark struct {
	Source  string
	Term    uint64
	Version Version
	// Server is the source's server that was asked, as [Position].Server names it; "" if that is not known. Everybody who
	// reads from it sees those changes. Others may not have them yet.
	Server string
	// Made is when the source was asked, on the clock of the process that asked: for display and lag, not for D,
	// which is counted from when the mark became known to who applies it.
	Made time.Time
	// Read is true when the reader had handed over everything that the source held when it was asked: the lag is
	// then zero as of Made, even if no change has happened for long.
	Read bool
}

// Covers reports whether the mark says that a record of the given source, term and version is visible.
func (m Mark) Covers(source string, term uint64, v Version) bool {
	return m.Source == source && term <= m.Term && v.Compare(m.Version) <= 0
}
