package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// rotating begins every password of these tests.
const rotating = "hunter2-"

// rotated is a login whose password is changed while freshet works, and a file that has it for freshet.
type rotated struct {
	file string
	n    int
	// change makes the server take a password, and no other.
	change func(password string)
}

func newRotated(t *testing.T, name string, change func(password string)) *rotated {
	t.Helper()
	r := &rotated{file: filepath.Join(t.TempDir(), name), change: change}
	r.rotate(t)
	return r
}

// rotate changes the password: the server knows it before freshet does, or freshet before the server; the file is
// replaced, or written over, which shows it empty for a moment.
func (r *rotated) rotate(t *testing.T) {
	t.Helper()
	r.n++
	password := fmt.Sprintf("%s%d", rotating, r.n)
	write := func() {
		if r.n%4 < 2 {
			testbed.Must(t, os.WriteFile(r.file, []byte(password+"\n"), 0o600))
			return
		}
		testbed.Must(t, os.WriteFile(r.file+".new", []byte(password+"\n"), 0o600))
		testbed.Must(t, os.Rename(r.file+".new", r.file))
	}
	if r.n%2 == 0 {
		write()
		r.change(password)
		return
	}
	r.change(password)
	write()
}

// secretive fails the test if a text holds one of the passwords.
func secretive(t *testing.T, what, text string) {
	t.Helper()
	if strings.Contains(text, rotating) {
		t.Errorf("%s tells a password:\n%s", what, text)
	}
}

// killSessions ends all sessions of a user of the source.
func killSessions(ctx context.Context, source *testbed.Server, user string) error {
	rows, err := source.DB().QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = ?", user)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		_, _ = source.DB().ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // it may have ended by itself
	}
	return rows.Err()
}

// Passwords of the source and of Redis are changed while rows change, and all sessions are ended each time: the stream,
// the sessions of queries, the connections to Redis. freshet reads the new ones, from a file and from a command, and
// nothing is lost.
func TestRotationsUnderLoadLoseNothing(t *testing.T) {
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.user, s.password = "cache", ""
		rights := "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
		if source.Flavor == testbed.FlavorMariaDB {
			rights = "SELECT, REPLICATION SLAVE, BINLOG MONITOR"
		}
		source.Exec(t, "CREATE USER 'cache'@'127.0.0.1'", "GRANT "+rights+" ON *.* TO 'cache'@'127.0.0.1'")
		db := newRotated(t, "db", func(password string) {
			source.Exec(t, "ALTER USER 'cache'@'127.0.0.1' IDENTIFIED BY '"+password+"'")
		})
		cache := newRotated(t, "cache", func(password string) {
			s.redis.Do(t, "acl", "setuser", "cache", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
		})
		s.mappings = `[{table: shop.product, keys: ["product:{id}"]}, {table: shop.product, keys: ["price:{id}"],
  rebuild: {query: "SELECT price FROM shop.product WHERE id = :id", as: string}}]`
		s.env = []string{
			"FRESHET_SOURCE_PASSWORD_FILE=" + db.file,
			"FRESHET_REDIS_USERNAME=cache", "FRESHET_REDIS_PASSWORD_COMMAND=cat '" + cache.file + "'",
		}
		r := s.run()
		written := s.load()
		for n := range testbed.Cut(10, 1000) {
			db.rotate(t)
			cache.rotate(t)
			testbed.Must(t, killSessions(t.Context(), source, "cache"))
			s.redis.Do(t, "client", "kill", "user", "cache")
			id := 1_000_000 + n
			s.cache(fmt.Sprintf("product:%d", id))
			s.write(id)
			s.gone(fmt.Sprintf("product:%d", id)) // over new sessions: the ones before were ended
		}
		rows := written()
		s.await("all is finished", func(st *app.Status) bool {
			return st.State == app.Fresh && st.Source.Connected && st.Rows >= uint64(rows)
		})
		for id := range loaded {
			key := fmt.Sprintf("price:%d", id)
			want := source.QueryText(t, fmt.Sprintf("SELECT price FROM shop.product WHERE id = %d", id))
			testbed.Eventually(t, patience, key+" is "+want, func() bool {
				return s.redis.Client().Get(t.Context(), key).Val() == want
			})
			if key := fmt.Sprintf("product:%d", id); s.cached(key) {
				t.Errorf("%s is stale", key)
			}
		}
		secretive(t, "config", s.ask("config"))
		secretive(t, "check", s.ask("check"))
		for _, page := range []string{"/status", "/metrics", "/"} {
			_, body := s.get(page)
			secretive(t, page, body)
		}
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
		secretive(t, "the log", r.Stderr()+r.Stdout())
	})
}

// loaded is how many rows change under load.
const loaded = 20

// load changes rows as fast as it can, and caches each before, as a reader does that comes too late. The function that
// it returns ends that, and returns how many changes there were.
func (s *site) load() (stop func() int) {
	end, done := make(chan struct{}), &sync.WaitGroup{}
	changes := 0
	done.Go(func() {
		for {
			for id := range loaded {
				select {
				case <-end:
					return
				default:
				}
				if err := s.redis.Client().Set(s.t.Context(), fmt.Sprintf("product:%d", id), "old", 0).Err(); err != nil {
					s.t.Error(err)
					return
				}
				err := s.source.ExecContext(s.t.Context(), fmt.Sprintf(
					"INSERT INTO shop.product (id, price) VALUES (%d, 1) ON DUPLICATE KEY UPDATE price = price + 1", id,
				))
				if err != nil {
					s.t.Error(err)
					return
				}
				changes++
			}
		}
	})
	return func() int {
		close(end)
		done.Wait()
		return changes
	}
}

// A file with a password that is missing, empty or wrong for a while is waited for, at the start as later: it is being
// replaced. It ends nothing, and the alarm names the key and the file.
func TestAPasswordThatIsNotThereIsWaitedFor(t *testing.T) {
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.user, s.password = "cache", ""
		source.Exec(t, "CREATE USER 'cache'@'127.0.0.1'", "GRANT ALL ON *.* TO 'cache'@'127.0.0.1'")
		db := newRotated(t, "db", func(password string) {
			source.Exec(t, "ALTER USER 'cache'@'127.0.0.1' IDENTIFIED BY '"+password+"'")
		})
		// The command is what fails at the start: files are looked at before that.
		s.env = []string{"FRESHET_SOURCE_PASSWORD_COMMAND=cat '" + db.file + "'"}
		testbed.Must(t, os.Rename(db.file, db.file+".away"))
		r := s.start("run")
		s.await("the alarm names it", func(st *app.Status) bool {
			return st.State != app.Fresh &&
				strings.Contains(fmt.Sprint(st.Alarms), "source.password_command: the command cat failed")
		})
		testbed.Must(t, os.Rename(db.file+".away", db.file))
		s.await("freshet is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
		testbed.Must(t, os.WriteFile(db.file, nil, 0o600))
		testbed.Must(t, killSessions(t.Context(), source, "cache"))
		s.cache("product:1")
		s.write(1)
		s.await("the alarm says that it is empty", func(st *app.Status) bool {
			return st.State != app.Fresh && strings.Contains(fmt.Sprint(st.Alarms), "printed nothing")
		})
		db.rotate(t)
		s.gone("product:1")
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
		secretive(t, "the log", r.Stderr())
	})
}

// tokenScript prints a token for Kafka without a signature, which its validator for tests takes, for so many seconds.
const tokenScript = `#!/bin/sh
encode() { base64 -w0 | tr '+/' '-_' | tr -d '='; }
now=$(date +%%s)
printf '%%s.%%s.' "$(printf '{"alg":"none"}' | encode)" \
  "$(printf '{"sub":"admin","iat":%%d,"exp":%%d}' $now $((now + %d)) | encode)"
`

// Around Kafka, tokens live for a few seconds. Reader and invalidator take new ones from a command, and nothing is
// lost.
func TestShortTokensAroundKafkaLoseNothing(t *testing.T) {
	const life = 5
	kafka := testbed.Kafka(t, testbed.KafkaOptions{Properties: []string{
		"listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"listener.name.client.sasl.enabled.mechanisms=OAUTHBEARER",
		"listener.name.client.oauthbearer.sasl.jaas.config=" +
			"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required " +
			`unsecuredLoginStringClaim_sub="admin";`,
		"connections.max.reauth.ms=3600000",
	}})
	script := filepath.Join(t.TempDir(), "token.sh")
	testbed.Must(t, os.WriteFile(script, []byte(fmt.Sprintf(tokenScript, life)), 0o700))
	s := newSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL")).around(t, kafka)
	s.kafka += fmt.Sprintf(`, sasl: {mechanism: oauthbearer, token_command: "sh '%s'"}`, script)
	s.extra = "retry: {park_delays: [10s]}" // one topic of parked keys is enough
	reader, invalidator := s.part("reader"), s.part("invalidator")
	read, invalidate := reader.start("reader"), invalidator.start("invalidator")
	reader.await("it reads", func(st *app.Status) bool { return st.Source != nil && st.Source.Connected })
	invalidator.await("it is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
	written := s.load()
	for n := range testbed.Cut(3, 100) { // each takes longer than a token lives
		until := time.After(life * time.Second)
		id := 1_000_000 + n
		s.cache(fmt.Sprintf("product:%d", id))
		s.write(id)
		s.gone(fmt.Sprintf("product:%d", id))
		<-until
	}
	rows := written()
	reader.await("all is read", func(st *app.Status) bool { return st.Rows >= uint64(rows) })
	for id := range loaded {
		s.gone(fmt.Sprintf("product:%d", id))
	}
	invalidator.await("it is fresh again", func(st *app.Status) bool { return st.State == app.Fresh })
	for _, r := range []*testbed.Running{read, invalidate} {
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
		if strings.Contains(r.Stderr(), "eyJ") { // how a JWT begins
			t.Errorf("a token is in the log: %s", r.Stderr())
		}
	}
}
