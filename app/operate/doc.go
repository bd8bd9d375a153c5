// Package operate is what operators do, besides letting freshet run: [Check] and [Explain], the saved position, dead
// letters and doubts. Dead letters and doubts are those of a freshet that does not run, or, by [Box] and [Book], of the
// one that this process runs.
package operate
