package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// The tables of the foreign keys. Customers, regions and offices are not mapped, all others are.
var cascadeSchema = []string{
	"CREATE DATABASE shop CHARACTER SET utf8mb4", "CREATE DATABASE archive CHARACTER SET utf8mb4",
	"CREATE TABLE shop.customer (id INT PRIMARY KEY, mail INT UNIQUE, visits INT NOT NULL DEFAULT 0)",
	`CREATE TABLE shop.purchase (id INT PRIMARY KEY, customer_id INT, CONSTRAINT of_customer FOREIGN KEY (customer_id)
		REFERENCES shop.customer (id) ON DELETE CASCADE ON UPDATE CASCADE)`,
	`CREATE TABLE shop.line (id INT PRIMARY KEY, purchase_id INT, FOREIGN KEY (purchase_id) REFERENCES shop.purchase (id)
		ON DELETE CASCADE)`,
	`CREATE TABLE archive.note (id INT PRIMARY KEY, line_id INT, FOREIGN KEY (line_id) REFERENCES shop.line (id)
		ON DELETE SET NULL)`,
	`CREATE TABLE shop.letter (id INT PRIMARY KEY, mail INT, FOREIGN KEY (mail) REFERENCES shop.customer (mail)
		ON DELETE SET NULL ON UPDATE CASCADE)`,
	`CREATE TABLE shop.category (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES shop.category (id)
		ON DELETE CASCADE)`,
	"CREATE TABLE shop.region (country INT, town INT, PRIMARY KEY (country, town))",
	`CREATE TABLE shop.office (id INT PRIMARY KEY, country INT, town INT, UNIQUE (country, town), FOREIGN KEY (country, town)
		REFERENCES shop.region (country, town) ON DELETE CASCADE ON UPDATE CASCADE)`,
	`CREATE TABLE shop.desk (id INT PRIMARY KEY, country INT, town INT, FOREIGN KEY (country, town)
		REFERENCES shop.office (country, town) ON DELETE SET NULL ON UPDATE CASCADE)`,
}

const cascadeMappings = `
mappings:
  - {table: shop.purchase, keys: ["purchase:{id}"]}
  - {table: shop.line, keys: ["line:{id}"]}
  - {table: archive.note*, keys: ["note:{id}"]}
  - {table: shop.letter, keys: ["letter:{id}"]}
  - {table: shop.category, keys: ["category:{id}"]}
  - {table: shop.desk, keys: ["desk:{id}"]}
`

// cachedRows are what readers cache of each mapped table.
var cachedRows = map[string]string{
	"purchase": "SELECT COALESCE((SELECT CONCAT_WS('/', id, customer_id) FROM shop.purchase WHERE id = ?), 'none')",
	"line":     "SELECT COALESCE((SELECT CONCAT_WS('/', id, purchase_id) FROM shop.line WHERE id = ?), 'none')",
	"note":     "SELECT COALESCE((SELECT CONCAT_WS('/', id, line_id) FROM archive.note WHERE id = ?), 'none')",
	"letter":   "SELECT COALESCE((SELECT CONCAT_WS('/', id, mail) FROM shop.letter WHERE id = ?), 'none')",
	"category": "SELECT COALESCE((SELECT CONCAT_WS('/', id, parent_id) FROM shop.category WHERE id = ?), 'none')",
	"desk":     "SELECT COALESCE((SELECT CONCAT_WS('/', id, country, town) FROM shop.desk WHERE id = ?), 'none')",
}

// households is how many families of rows there are: the rows of each have its number as their id.
const households = 200

// cascadeLoad is writers of parents and cache-aside readers of children.
type cascadeLoad struct {
	t                *testing.T
	db               *sql.DB
	rdb              *redis.Client
	writers, readers flock
	writes, fills    atomic.Int64
}

func startCascades(r *rig, seed uint64) *cascadeLoad {
	r.t.Helper()
	l := &cascadeLoad{t: r.t, db: r.source.DB(), rdb: r.redis.Client()}
	l.writers.start(3, func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for ctx.Err() == nil {
			if err := l.write(rnd); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(pace()):
			}
		}
		return nil
	})
	l.readers.start(12, func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(100+i)))
		for ctx.Err() == nil {
			if err := l.read(ctx, rnd); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(pace()):
			}
		}
		return nil
	})
	r.t.Cleanup(func() { _, _ = l.writers.stop(), l.readers.stop() })
	return l
}

// write changes a parent in one of the ways that reach its children, or gives it children again.
func (l *cascadeLoad) write(rnd *rand.Rand) error {
	n := 1 + rnd.IntN(households)
	var statements []string
	switch rnd.IntN(12) {
	case 0:
		statements = []string{"DELETE FROM shop.customer WHERE id = %d"}
	case 1:
		statements = []string{"REPLACE INTO shop.customer (id, mail) VALUES (%d, %[1]d)"}
	case 2:
		statements = []string{"INSERT INTO shop.customer (id, mail) VALUES (%d, %[1]d) ON DUPLICATE KEY UPDATE mail = -%[1]d"}
	case 3:
		statements = []string{"UPDATE shop.customer SET id = -id WHERE id IN (%d, -%[1]d)"}
	case 4:
		statements = []string{`DELETE shop.customer, shop.line FROM shop.customer LEFT JOIN shop.line USING (id)
			WHERE shop.customer.id = %d`}
	case 5:
		statements = []string{"DELETE FROM shop.category WHERE id = %d"}
	case 6:
		statements = []string{"UPDATE shop.region SET town = -town WHERE country = %d"}
	case 7:
		statements = []string{"DELETE FROM shop.region WHERE country = %d"}
	default:
		statements = []string{
			"INSERT IGNORE INTO shop.customer (id, mail) VALUES (%d, %[1]d)",
			"INSERT IGNORE INTO shop.purchase VALUES (%d, %[1]d)", "INSERT IGNORE INTO shop.line VALUES (%d, %[1]d)",
			"REPLACE INTO archive.note VALUES (%d, (SELECT id FROM shop.line WHERE id = %[1]d))",
			"REPLACE INTO shop.letter VALUES (%d, (SELECT mail FROM shop.customer WHERE mail = %[1]d))",
			fmt.Sprintf("INSERT IGNORE INTO shop.category VALUES (%%d, %d)", 1+rnd.IntN(households)),
			"INSERT IGNORE INTO shop.category VALUES (%d, NULL)",
			"INSERT IGNORE INTO shop.region VALUES (%d, %[1]d)",
			"INSERT IGNORE INTO shop.office VALUES (%d, %[1]d, %[1]d)",
			"INSERT IGNORE INTO shop.desk VALUES (%d, %[1]d, %[1]d)",
		}
	}
	for _, s := range statements {
		// A row that is not there, and one that is: all of it may be refused by another writer's.
		_, err := l.db.ExecContext(context.Background(), fmt.Sprintf(s, n))
		if err != nil && !deadlock(err) && !renamed(err) && !strings.Contains(err.Error(), "constraint") &&
			!strings.Contains(err.Error(), "Duplicate") {
			return fmt.Errorf("%s: %w", fmt.Sprintf(s, n), err)
		}
	}
	l.writes.Add(1)
	return nil
}

// read is cache-aside, slow on purpose.
func (l *cascadeLoad) read(ctx context.Context, rnd *rand.Rand) error {
	kinds := []string{"purchase", "line", "note", "letter", "category", "desk"}
	kind, id := kinds[rnd.IntN(len(kinds))], 1+rnd.IntN(households)
	key := fmt.Sprintf("%s:%d", kind, id)
	if err := l.rdb.Get(ctx, key).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	start := time.Now()
	var value string
	if err := l.db.QueryRowContext(ctx, cachedRows[kind], id).Scan(&value); renamed(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !inTime(ctx, rnd, start) {
		return nil
	}
	l.fills.Add(1)
	return l.rdb.Set(context.WithoutCancel(ctx), key, value, 0).Err()
}

// renamed reports whether a table has another name for the moment.
func renamed(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1146
}

// compare compares all that is cached with its rows.
func (l *cascadeLoad) compare() (c compared) {
	l.t.Helper()
	ctx := l.t.Context()
	for kind, query := range cachedRows {
		for id := 1; id <= households+orphans; id++ {
			have, err := l.rdb.Get(ctx, fmt.Sprintf("%s:%d", kind, id)).Result()
			if errors.Is(err, redis.Nil) {
				continue
			}
			testbed.Must(l.t, err)
			var want string
			testbed.Must(l.t, l.db.QueryRowContext(ctx, query, id).Scan(&want))
			c.cached++
			if have == want {
				continue
			}
			c.stale = append(c.stale, fmt.Sprintf("%s:%d is cached as %q, its row says %q", kind, id, have, want))
			if want == "none" {
				c.gone++
			}
		}
	}
	return c
}

// rounds loads for some time, with foreign keys that come and go.
func (l *cascadeLoad) rounds(r *rig) {
	r.t.Helper()
	for range testbed.Cut(1, 5) {
		<-time.After(testbed.Cut(3*time.Second, 10*time.Second))
		r.source.Exec(r.t, "RENAME TABLE archive.note TO archive.note_2")
		r.source.Exec(r.t, "RENAME TABLE archive.note_2 TO archive.note")
		r.source.Exec(r.t, "ALTER TABLE shop.purchase DROP FOREIGN KEY of_customer")
		<-time.After(testbed.Cut(time.Second, 3*time.Second))
		r.source.Exec(r.t, "SET foreign_key_checks = 0", `ALTER TABLE shop.purchase ADD CONSTRAINT of_customer FOREIGN KEY
			(customer_id) REFERENCES shop.customer (id) ON DELETE CASCADE ON UPDATE CASCADE`, "SET foreign_key_checks = 1")
		<-time.After(testbed.Cut(2*time.Second, 10*time.Second))
	}
}

// Rows are deleted and changed by foreign keys while readers race, on servers that have no row events for them. In the
// end no key is stale.
//
// A Redis in which freshet may not look for keys is what shows that the test can fail: then no doubt is answered.
func TestForeignKeysLeaveNoKeyStale(t *testing.T) {
	t.Parallel()
	seed := testbed.Seeded(t).Uint64()
	var mu sync.Mutex
	found := map[string]compared{}
	note := func(name string, c compared) {
		mu.Lock()
		defer mu.Unlock()
		found[name] = c
	}
	servers := map[string]func(*testing.T) *testbed.Server{
		"mysql":   func(t *testing.T) *testbed.Server { return testbed.MySQL(t, "--innodb-native-foreign-keys=ON") },
		"mariadb": func(t *testing.T) *testbed.Server { return testbed.MariaDB(t) },
	}
	embedded := func(t *testing.T, name, may string, answers bool) {
		t.Run(fmt.Sprintf("%s answers %t", name, answers), func(t *testing.T) {
			t.Parallel()
			c := cascadesEmbedded(t, servers[name](t), seed, may, answers)
			note(fmt.Sprintf("%s answers %t", name, answers), c)
		})
	}
	t.Run("all", func(t *testing.T) {
		for name := range testbed.SomeOf(t, servers) {
			embedded(t, name, "+@all", true)
		}
		embedded(t, "mariadb", "+@all -scan", false)
		for name, start := range testbed.SomeOf(t, servers) {
			t.Run("kafka "+name, func(t *testing.T) {
				t.Parallel()
				note("kafka "+name, cascadesAroundKafka(t, start(t), seed))
			})
		}
	})
	for name, c := range found {
		t.Logf("%s: %s", name, c)
	}
	if len(found["mariadb answers false"].stale) == 0 {
		t.Error("without the answer nothing is stale either, so nothing is shown")
	}
}

func cascadesEmbedded(t *testing.T, source *testbed.Server, seed uint64, may string, answers bool) compared {
	t.Helper()
	r := newRig(t, source, strings.Fields("--user freshet on >secret ~* &* "+may)...)
	r.mayRead("archive.*")
	r.cfg.redis = ", username: freshet, password: secret"
	r.cfg.d, r.cfg.mappings = loadD, cascadeMappings
	r.source.Exec(t, cascadeSchema...)
	r.configure()
	r.run()
	l := startCascades(r, seed)
	l.rounds(r)
	r.kill()
	r.launch()
	<-time.After(time.Second)
	testbed.Must(t, l.writers.stop())
	l.orphan(func() { r.finish(3 * time.Minute) })
	if answers {
		r.await("answer what is in doubt", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
	}
	c := l.end()
	if answers {
		c.verify(t)
	}
	r.stop()
	return c
}

func cascadesAroundKafka(t *testing.T, source *testbed.Server, seed uint64) compared {
	t.Helper()
	f := newFleetFor(t, loadD, cascadeMappings, source, testbed.SharedKafka(t), 2, 2)
	f.mayRead("archive.*")
	f.source.Exec(t, cascadeSchema...)
	f.start()
	l := startCascades(f.rig, seed)
	l.rounds(f.rig)
	leader, term, _ := f.reign(nil, 0)
	leader.kill()
	others := f.readers
	f.readers = nil
	for _, m := range others {
		if m != leader {
			f.readers = append(f.readers, m)
		}
	}
	f.reign(leader, term)
	leader.launch(leader.role)
	f.readers = append(f.readers, leader)
	testbed.Must(t, l.writers.stop())
	l.orphan(func() { f.finish(3 * time.Minute) })
	f.awaitAll("all doubts are answered", 3*time.Minute, func(_, invalidators []status) bool {
		for _, s := range invalidators {
			if len(s.Doubts) > 0 || s.State == "" {
				return false
			}
		}
		return true
	})
	c := l.end()
	c.verify(t)
	f.stop()
	return c
}

// orphans is how many more families there are at the end, of which all rows are cached when their parents go.
const orphans = 50

// orphan has rows go with their parents for the last time, with all of them cached, so that each stays stale if nobody
// forgets it. finish waits until all is finished.
func (l *cascadeLoad) orphan(finish func()) {
	l.t.Helper()
	ctx := l.t.Context()
	exec := func(statement string, args ...any) {
		l.t.Helper()
		_, err := l.db.ExecContext(ctx, statement, args...)
		testbed.Must(l.t, err)
	}
	for id := households + 1; id <= households+orphans; id++ {
		exec("INSERT INTO shop.customer (id, mail) VALUES (?, ?)", id, id)
		exec("INSERT INTO shop.purchase VALUES (?, ?)", id, id)
		exec("INSERT INTO shop.line VALUES (?, ?)", id, id)
	}
	finish()
	for id := households + 1; id <= households+orphans; id++ {
		for _, kind := range []string{"purchase", "line"} {
			var value string
			testbed.Must(l.t, l.db.QueryRowContext(ctx, cachedRows[kind], id).Scan(&value))
			testbed.Must(l.t, l.rdb.Set(ctx, fmt.Sprintf("%s:%d", kind, id), value, 0).Err())
		}
	}
	exec("DELETE FROM shop.customer WHERE id > ?", households)
	finish()
}

// end stops the readers and returns what is stale.
func (l *cascadeLoad) end() compared {
	l.t.Helper()
	<-time.After(2 * time.Second)
	testbed.Must(l.t, l.readers.stop())
	l.t.Logf("%d writes, %d fills", l.writes.Load(), l.fills.Load())
	return l.compare()
}
