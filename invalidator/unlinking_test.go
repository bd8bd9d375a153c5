package invalidator

import (
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

func unlinkOne(t *testing.T, s *Single, key string) *Command {
	t.Helper()
	c := commandsOf(key)
	s.Unlink(t.Context(), c)
	return c[0]
}

// A Redis with the setting timeout closes what is unused. That is no failure of Redis, of which all keys would have to
// be deleted again.
func TestAnUnusedConnectionThatRedisHasClosedIsNotRedisAway(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	server.Do(t, "client", "kill", "type", "normal", "skipme", "yes")
	conn := <-s.kept
	conn.used = time.Time{} // long ago
	s.kept <- conn
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	if again := <-s.kept; again == conn {
		t.Error("the connection that Redis had closed was kept")
	} else {
		testbed.Must(t, again.Close())
	}
}

func TestAConnectionIsKeptForTheNextDeletes(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	for range 3 {
		testbed.Must(t, unlinkOne(t, s, "a").Err)
		conn := <-s.kept
		conn.used = time.Now()
		s.kept <- conn
		s.Unlink(t.Context(), append(commandsOf("a"), commandsOf("b")...))
		if again := <-s.kept; again != conn {
			t.Fatal("another connection was taken")
		}
		conn.used = time.Now()
		s.kept <- conn
	}
}

// Who has become a replica says so on every connection; its address may lead to the new master by now.
func TestAConnectionToWhatTakesNoDeletesIsNotUsedAgain(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	server.Do(t, "replicaof", "127.0.0.1", 1)
	if c := unlinkOne(t, s, "a"); retry.ClassifyRedis(c.Err) != retry.Away ||
		!strings.HasPrefix(c.Err.Error(), "READONLY ") {
		t.Errorf("a replica: %v", c.Err)
	}
	if n := len(s.kept); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
	if idle := s.client.PoolStats().IdleConns; idle != 0 {
		t.Errorf("%d connections are in the pool", idle)
	}
}

// A connection that was lost in a round trip is lost for that one alone.
func TestAfterALostConnectionTheNextDeletesHaveAnother(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	conn := <-s.kept
	server.Do(t, "client", "kill", "type", "normal", "skipme", "yes")
	conn.used = time.Now() // so that nobody looks
	s.kept <- conn
	if c := unlinkOne(t, s, "a"); retry.ClassifyRedis(c.Err) != retry.Away {
		t.Errorf("over a connection that is lost: %v", c.Err)
	}
	testbed.Must(t, unlinkOne(t, s, "a").Err)
}
