// Package write turns an action on a key into calls to Redis, and their replies into what it did. It sends nothing
// itself: the engine of package invalidator does.
//
// On the path of a row change it stands at the very end, between the engine and Redis. What it guarantees: in Redis, an
// older value of a row never takes the place of a newer one, and where it cannot be known which is which, neither is
// there. A cache may forget.
//
// A [Builder] belongs to one goroutine, and its calls are valid until it is reset. [Names] and the scripts are only
// read. [Pack] puts calls that are alike into one of several keys, which does what they would do one after the other.
//
// # The guard
//
// Delete, expire and incr commute, and need no guard. A value does not: a process that lost its partition, replays, or
// is a leader no more may come late with an old one. So next to each key that freshet writes to there is a companion in
// the same Cluster slot ([Names]) that says for which change the key was last written:
//
//	<version> <since> <source>
//
// A version there is its epoch, file, position and row, each after how many digits it has, so that the newer of two is
// the larger as text. A script decides and writes in one step (rebuild.lua, field.lua and member.lua, with head.lua and
// guard.lua within each). With v the version of the change and c that of the companion:
//
//	same source and epoch, c > v                   older: nothing is done
//	Redis' clock is past the action's Until        the key is forgotten (below), whatever else holds
//	same source and epoch, c <= v, it confirms     written, c := v
//	... it does not confirm yet                    the key is removed, c := v; but written, and it confirms from now on, if
//	                                               it was begun before the time that v brings, or is old enough
//	no companion, another source, a later epoch    the key is removed, c := v, does not confirm
//	the companion is of a later epoch              the key is removed, the companion stays
//
// since is 0 where the companion confirms, else Redis' time at which it was begun. Forgetting removes, and raises a
// companion that is there. A leftover leaves the companion at c, begun at this moment, and the key alone where c > v;
// what somebody names leaves the companion so, too, but never the key: see "What is done again".
//
// # Why that is enough
//
// Let a change be settled when its final action has been done: from then on nobody repairs what an older value does.
// The value of an older change v may only be written while all newer ones have not been settled, or a companion says
// so. While the companion lives it says so. It may be evicted, though, alone or with the key, and then be begun again
// by just that late writer. Whether the key is there says nothing about it, so an absent key is no reason to write
// either.
//
// A companion knows of all that is settled after it was begun. So the final action of v may take one for good that was
// there at a moment T at which nothing newer than v had been settled, and for that it brings T. It comes from the reply
// to the first action of v, which found no companion and began one, or found one that does not confirm yet: the script
// answers with its since. A newer change is settled no sooner than D after it was known to be visible, and so after v
// was. Hence a T counts if the reply came before v had been known to be visible for half of D, whatever became of the
// action's copies: a repeat, or one that a stopped process sends long afterwards, can only begin a companion later than
// T. A reply that was lost brings none. Half of D is left for an owner that learns later than another what is visible.
// Time in Redis alone is compared, so the proof holds however late the second action takes effect.
//
// What lies about in a process that was stopped, or on a machine that was suspended, says nothing about what is
// visible. Neither does a mark's age by a clock that was set. So a process notices that it has slept, or that Redis'
// clock and its own do not agree about how much time has passed, and forgets what it got before, or shortly after.
//
// A companion also confirms once it is Window and 5 s old. A value takes effect no later than Window after its owner
// knew v to be visible, for Redis itself looks at its clock ([Item].Until), however long a stopped process, a network
// or a socket held it back. A newer change is settled later than v was visible, so nothing comes then that was
// overtaken before the companion was begun. The 5 s, and D, are for owners that learn later than others what is
// visible.
//
// What is not covered: an owner that learns more than D/2 later than another that a change is visible, and a clock of
// Redis that steps, until the owner has asked it again. Nor is a key that mappings with different D write: the final
// action of the one with the longer D does nothing where the companion has a newer change of the other.
//
// So the first change of a key that is not known to freshet deletes it, and its final action writes it; a key whose
// changes come faster is written from Window and 5 s after the first of them. From then on every change is written at
// once. Without D what is known to be visible has no second action: there, and only there, is an absent key without a
// companion written.
//
// # What is done again
//
// A leftover ([Item].Leftover) forgets what it was about: an older leader left it behind, or a range of the log is done
// once more, since Redis came back with older data, or a scope has found the key. Where the companion has a newer
// change of the same source and epoch (c > v), it does nothing. That change has its own final action. If this is still
// to come, it removes or replaces all that is older. If Redis has seen it, nothing older came after it. And if Redis
// came back with what it held before it, then it was not finished in what Redis holds now, so that it is done again
// as well, or its change was read afterwards. Values and companions come back together, for a script writes both in one
// step.
//
// That is true of companions that say which change of the key was last there. What a scope forgets has the newest
// version that everybody can see, and that may be another key's. A companion raised to it would be newer than changes
// of the key whose final actions are still to come, and these would do nothing. A later scope, in a process that knows
// of less yet, would take it for a newer change. So a leftover leaves the companion at c. As after an eviction, it
// confirms nothing until it is old enough again. The same holds for keys that somebody names ([Item].Named), of which
// the second delete may never come: a process that is killed in between does not know of them any more.
//
// So c = v is not enough: what Redis holds may be of the time between the first and the final action of v, and nobody
// else repairs it. Nor are other forgets left undone. Two mappings may have a key in common and differ in D: a slow
// reader of one may fill the key after the final action of a newer change of the other.
//
// Of a member its own mark must be newer. The newest mark of a set says nothing, for the final action of another member
// does not repair this one; a leftover that names no member removes the set. Nothing is known of a key that is only
// deleted, expired or raised: that is always done.
//
// # What was read from its table
//
// A walk reads a row as it is, and hands it on under the newest version v that was known to be visible before the
// source was asked. So the value is no older than v, and the proof above holds with the question instead of v: a change
// newer than v was not known to be visible then, and is settled no sooner than D after the question. D, how old the
// value is, and for how long T counts are all measured from the question. A walk that is killed reads its rows again.
//
// The value may be newer than v. Then an older change, newer than v, may still replace it, until the change that the
// value is of has had its own actions.
//
// # What the sender owes
//
//   - [Item.Judge] is asked before every sending, also one again after a lost connection, with a time of Redis' clock
//     that is not ahead of it, and with what is known to be visible after that time was asked for.
//   - [Item].Begun of a final action is the largest [Builder.Begun] of the first one's calls; 0 if one of its replies
//     was lost, or came when the change had been known to be visible for D/2. Of a query that was run after that reply
//     it is always that: what the query read holds all that was settled before.
//   - What a process got, or what a query began to read, before the process slept or Redis' clock stepped, or less
//     than [ConfirmsAfter] after, is forgotten.
//   - Calls of one item go down one connection in order, and all of them are sent again or none.
//   - What is done again after Redis came back with older data is every change that was not finished when Redis held
//     that, up to the last one that was read before Redis came back, each with a final action by the rule. If the
//     source lost changes that were read, or the mappings changed, then no final action comes for some of what
//     companions say: what is done again is then sent under the newest version that everybody can see, as a scope does.
//
// # Fields and members
//
// A field of a hash has the companion of its own inside a hash of them. That is bounded: it has two generations of
// [DefaultEntries] each, and what falls out is unknown again: the next change removes the field. A field has its mark
// in one generation only, for Redis may evict the younger one alone.
//
// A member is marked in the same way, but a set that lacks a member says something, too: so where the marks do not
// confirm a member, the whole key goes. The marks as a whole have a floor, the change that they were begun by or the
// newest one that a generation that is gone had; a change below it removes the key. A member is only ever added to a
// key that is there, for a set of one member that should have a thousand is worse than none.
//
// # Memory and time
//
// A companion lives as long as its value, D twice and a minute longer, and an hour at least; 24 hours, or D twice and
// a minute, next to a value that lives forever, fields and members. A value of any size is written by one SET within
// the script. A hash of more than 256 fields or 64 KiB is put together in a temporary key, in pieces of that size, and
// renamed by the guard's script; what is lost of it meanwhile is noticed, and the key removed instead. A temporary key
// that is left lives for a minute.
//
// What a script keeps Redis from doing else (BenchmarkBlocking, Redis 7.0 on a busy machine of two cores, medians): a
// string of 1 KiB 16 µs, of 1 MiB 1.3 ms, since Lua copies it; a piece of a large hash 0.15 to 0.25 ms; renaming one of
// 100,000 fields 50 µs. BenchmarkWrites prints what the guard costs compared with plain writes.
//
// # Errors
//
// A key of another type, a score that is no number, no memory (OOM): the script removes the key instead, at once, and
// says so ([Forgotten]). What Redis refuses as a whole (READONLY, NOPERM, MISCONF, LOADING) is handed on as an error;
// [Builder.Mark] and [Builder.Fallback] are what can be sent instead.
package write
