package retry

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisError is one kind of error that Redis answers with: how its text begins and what it must hold besides.
type redisError struct {
	prefix, holds string
	class         Class
	// denied: the user may not run the command, though the server may do well.
	denied bool
	// redirects: another node of the cluster serves the keys, or will.
	redirects bool
	// advice is what an operator can do; empty where waiting is all.
	advice string
}

// OldestRedis is the oldest major version of Redis that freshet works with: ACLs, and scripts that ask for the time and
// then write.
const OldestRedis = 6

const scriptRights = "give the user in redis.username the right to TIME and to what freshet's scripts use (ACL SETUSER)"

// redisAnswers returns what Redis is known to answer, the first match counts. The texts are those of Redis 6.0 to 8
// and Valkey (server.c, acl.c, cluster.c, script_lua.c of their sources); which of them a test has captured from a
// running server is seen in redis_test.go.
func redisAnswers() []redisError {
	return []redisError{
		{prefix: "LOADING ", class: Away},
		{prefix: "READONLY ", class: Away, advice: "this Redis is a replica: point redis.addresses at the master"},
		{prefix: "CLUSTERDOWN ", class: Away},
		{prefix: "MASTERDOWN ", class: Away},
		{prefix: "TRYAGAIN ", class: Away, redirects: true},
		{prefix: "NOREPLICAS ", class: Away, advice: "Redis has fewer good replicas than its min-replicas-to-write asks for"},
		{prefix: "BUSY ", class: Away, advice: "a script blocks Redis: SCRIPT KILL ends it if it has not written yet"},
		{
			prefix: "MISCONF ", class: Away,
			advice: "Redis cannot save its data and takes no writes: look at its log and its disk",
		},
		{prefix: "NOAUTH ", class: Away, advice: "set redis.password"},
		{prefix: "WRONGPASS ", class: Away, advice: "correct redis.username and redis.password"},
		{
			prefix: "DENIED ", class: Away,
			advice: "Redis is in protected mode: give it a password, or bind it to an address that freshet can use",
		},
		{prefix: "ERR AUTH ", class: Away, advice: "this Redis has no password: leave redis.password empty"},
		{prefix: "ERR Client sent AUTH", class: Away, advice: "this Redis has no password: leave redis.password empty"},
		{prefix: "ERR invalid password", class: Away, advice: "correct redis.password"},
		{prefix: "ERR DB index is out of range", class: Away, advice: "correct redis.db"},
		{
			prefix: "ERR max number of clients", class: Away,
			advice: "raise Redis' maxclients, or find who holds its connections",
		},
		// As an absence, for one that is spoken to as if it were a single server. Who knows that it is a cluster asks
		// IsRedirection first.
		{
			prefix: "MOVED ", class: Away, redirects: true,
			advice: "this Redis is part of a cluster: set redis.mode to cluster",
		},
		{prefix: "ASK ", class: Away, redirects: true},
		{prefix: "REDIRECT ", class: Away},
		// The scripts are gone with the server that had loaded them: the users of scripts load them again.
		{prefix: "NOSCRIPT ", class: Away},
		{prefix: "OOM ", class: Memory, advice: "Redis is at its maxmemory and evicts nothing: see maxmemory-policy"},
		// Which command a user may run concerns all keys, which keys and channels he may touch only these.
		{
			prefix: "NOPERM ", holds: " run the ", class: Away, denied: true,
			advice: "give the user in redis.username the right to run this command (ACL SETUSER)",
		},
		// The same of a command within a script, from 7.2 on and before.
		{prefix: "ERR ACL failure in script: ", holds: " run the ", class: Away, denied: true, advice: scriptRights},
		{
			prefix: "ERR ", holds: "The user executing the script can't run this command", class: Away, denied: true,
			advice: scriptRights,
		},
		{
			prefix: "NOPERM ", class: Key,
			advice: "give the user in redis.username access to the keys of this mapping (ACL SETUSER)",
		},
		{
			prefix: "ERR unknown command", class: Fatal,
			advice: fmt.Sprintf("freshet needs Redis %d.0 or later, with this command neither renamed nor disabled", OldestRedis),
		},
		{prefix: "ERR wrong number of arguments", class: Fatal},
		{prefix: "ERR syntax error", class: Fatal},
		{prefix: "ERR Protocol error", class: Fatal},
		{
			prefix: "CROSSSLOT ", class: Fatal,
			advice: "this Redis is part of a cluster: set redis.mode to cluster",
		},
		{prefix: "NOPROTO ", class: Fatal},
		{prefix: "", class: Key},
	}
}

// ClassifyRedis says who is in trouble when a command to Redis fails with err: [Away], [Key], [Memory] or [Fatal].
//
// Everything that is not an answer of Redis is [Away]: refused and broken connections, timeouts, an exhausted pool,
// a context that ended (look at your own context first), a reply that is no Redis reply. The exceptions are faults
// of the program: a client that was closed and an argument that cannot be sent are [Fatal]. An answer that is not
// known is [Key]. [Memory] is what a write of a value may get; a delete needs no memory, so for one it counts as
// [Away].
//
// A pipeline's own error is that of its first failed command: ask about each command's. An error of a command on
// several keys may be the fault of one of them.
func ClassifyRedis(err error) Class {
	if err == nil || errors.Is(err, redis.Nil) {
		return None
	}
	var refused *LoginRefused
	if errors.As(err, &refused) {
		return Away // whatever it says: without a login nothing is done
	}
	if a, ok := findAnswer(err); ok {
		return a.class
	}
	if errors.Is(err, redis.ErrClosed) || strings.HasPrefix(err.Error(), "redis: can't marshal") {
		return Fatal
	}
	return Away
}

// RedisAdvice says in a clause what an operator can do about err; "" where nothing but waiting is known to help.
func RedisAdvice(err error) string {
	if err == nil || errors.Is(err, redis.Nil) {
		return ""
	}
	var lookup *net.DNSError
	switch a, answered := findAnswer(err); {
	case answered:
		return a.advice
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "nothing is lost; if that name is wrong, correct redis.addresses"
	case strings.Contains(err.Error(), "redis: invalid reply"), strings.Contains(err.Error(), "redis: can't parse"):
		return "what answers there does not speak Redis' protocol: correct redis.addresses, or redis.tls"
	}
	return ""
}

// IsDenied reports whether Redis refuses a command because its user may not run it. Others may pass meanwhile.
func IsDenied(err error) bool {
	a, ok := findAnswer(err)
	return ok && a.denied
}

// IsUnknownCommand reports whether Redis does not know a command by its name: it is too old, or the command was renamed
// or disabled.
func IsUnknownCommand(err error) bool { return redis.HasErrorPrefix(err, "unknown command") }

// IsBarred reports whether Redis refuses a command whatever it is about: this user may not run it, or nobody may.
func IsBarred(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") || IsUnknownCommand(err) }

// IsRedirection reports whether a node of a cluster says that it does not serve the keys of a command, or not now, for
// their slot is, or is being moved, elsewhere; and whether it says that the node which takes the slot serves them if it
// is asked to (ASK).
func IsRedirection(err error) (redirected, asks bool) {
	a, ok := findAnswer(err)
	return ok && a.redirects, a.prefix == "ASK "
}

// LoginRefused is what Redis answers to a login, when it is no error that go-redis has read.
type LoginRefused struct {
	// Answer is Redis' error, such as "WRONGPASS invalid username-password pair or user is disabled.".
	Answer string
}

// Error returns the answer.
func (e *LoginRefused) Error() string { return e.Answer }

// findAnswer returns the kind of answer that err is; false if it is no answer of Redis.
func findAnswer(err error) (redisError, bool) {
	var answered redis.Error
	var refused *LoginRefused
	text := ""
	switch {
	case errors.As(err, &answered):
		text = inScript(answered.Error())
	case errors.As(err, &refused):
		text = refused.Answer
	default:
		return redisError{}, false
	}
	for _, a := range redisAnswers() {
		if strings.HasPrefix(text, a.prefix) && strings.Contains(text, a.holds) {
			return a, true
		}
	}
	return redisError{}, false // not reached: the last kind matches everything
}

// inScript returns the error that stopped a script, which Redis before 7.0 wraps:
// "ERR Error running script (call to f_<sha1>): @user_script:1: -READONLY You can't write against a read only replica."
func inScript(text string) string {
	if !strings.HasPrefix(text, "ERR Error running script") {
		return text
	}
	if _, cause, ok := strings.Cut(text, ": -"); ok {
		return cause
	}
	return text
}
