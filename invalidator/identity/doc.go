// Package identity notices when Redis is not the server, or does not hold the data, that it was: restarted from an old
// snapshot, failed over to a replica that lacks the last deletes, or another server under the same address. Keys that
// were deleted are back then, and nobody deletes them again: that is a doubt (cause redis_changed). So is another
// database or another prefix of all keys: of what is cached there nothing was deleted before.
//
// It stands next to the engine and looks at INFO: what each new connection answers ([Watch.Answered]), and what is
// asked once a second ([Watch.Run]). Who Redis was is kept durably ([doubt.Facts]), so that a change while freshet was
// down is noticed as well; the doubt is recorded before the new identity is kept.
//
// How old the data is says a stamp that is kept in it: stamp.go.
//
// A [Watch] is safe for concurrent use.
package identity
