package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// Rows with the numbers up to lively are written and read all the time. Of those from last on, nobody writes or reads
// one: they are cached just before a cause comes for the last time, so that each that it takes stays stale if freshet
// does nothing.
const (
	lively   = 60
	last     = 1001
	lastRows = 20
)

// shelf is a Redis that freshet keeps fresh, and the readers that fill it.
type shelf struct {
	*rig    // the process that writes to it
	clients load
	readers flock
	fills   atomic.Int64
	// place is the database of Redis where the keys are, if it is not the first.
	place atomic.Pointer[redis.Client]
}

// cache is where the application looks for keys.
func (s *shelf) cache() *redis.Client {
	if c := s.place.Load(); c != nil {
		return c
	}
	return s.redis.Client()
}

// unrest is tables to which everything happens of which no row event tells. Two freshets read the same source, or two
// groups of invalidators the same topic. The Redis of the passing one refuses to it what answers need: to look for
// keys, and to say which server it is. What is left to it, to do changes again, it does at one key a second.
type unrest struct {
	t                  *testing.T
	source             *testbed.Server
	rnd                *rand.Rand
	causes             []cause
	rows               []*shelved // one for each of the happenings
	reading            []*rig     // the processes that read the source
	answering, passing *shelf
	clients            load
	writers            flock
	value              atomic.Int64
	refused, written   atomic.Int64
	// another starts a server like the source, and fleet is nil unless the log is in Kafka.
	another func() *testbed.Server
	fleet   *fleet
	// Clients write to the server that leads, unless writing is locked, and fill the cache from another one at times.
	leads, filling atomic.Pointer[testbed.Server]
	writing        sync.RWMutex
	// more is what the mappings of some tables say besides their keys.
	more map[string]string
	// after is what is done once what happened was looked at.
	after []func()
	// configure writes the configuration of all processes.
	configure func()
	// forget gives freshet, while it is down, a place of its own where it finds nothing that it has kept.
	forget func()
}

// Everything that leaves keys stale without a row event, under load: each cause that statements have, then those of
// servers, of operators, and of a configuration. In the end of each no key is stale, not even those of rows that are
// gone.
//
// What shows that the test can fail is the same load with a Redis where freshet cannot answer.
func TestEachCauseOfADoubtUnderLoadLeavesNoKeyStale(t *testing.T) {
	t.Parallel()
	type setting struct {
		log   string
		start func(testing.TB, ...string) *testbed.Server
		args  []string
	}
	var settings []setting
	for _, log := range []string{"embedded", "kafka"} {
		settings = append(settings,
			setting{log, testbed.MySQL, append([]string{"--innodb-native-foreign-keys=ON"}, losesWide...)},
			setting{log, testbed.MariaDB, losesWide})
	}
	for _, p := range testbed.Some(t, settings) {
		rnd := testbed.Seeded(t)
		metadata := "--binlog-row-metadata=" + pick(rnd, []string{"FULL", "MINIMAL"})
		source := p.start(t, append(slices.Clone(p.args), metadata)...)
		t.Run(fmt.Sprintf("%s %s %s", p.log, source.Flavor, metadata), func(t *testing.T) {
			u := newUnrest(t, source, rnd)
			u.another = func() *testbed.Server {
				return p.start(t, append(slices.Clone(p.args), metadata, "--log-slave-updates")...)
			}
			if p.log == "kafka" {
				u.aroundKafka()
			} else {
				u.embedded()
			}
			t.Cleanup(func() { _, _, _ = u.writers.stop(), u.answering.readers.stop(), u.passing.readers.stop() })
			u.statements()
			all := slices.DeleteFunc(u.rnd.Perm(len(happenings)), func(i int) bool {
				h := &happenings[i]
				return h.unnamed && strings.HasSuffix(metadata, "FULL") || h.inKafka && u.fleet == nil
			})
			quick := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return happenings[i].slow && !testbed.Soak() })
			some := named(all, quick[:testbed.Cut(3, len(all))], func(i int) string { return happenings[i].table })
			for _, i := range some {
				u.happening(happenings[i], u.rows[i])
			}
			for _, p := range u.processes() {
				p.stop()
			}
			t.Logf("%d writes, %d refused; %d and %d fills", u.written.Load(), u.refused.Load(), u.answering.fills.Load(),
				u.passing.fills.Load())
		})
	}
}

// named returns those of all whose name FRESHET_CAUSES, a regular expression, matches, and without it those that are
// drawn.
func named[T any](all, drawn []T, name func(T) string) []T {
	only := os.Getenv("FRESHET_CAUSES")
	if only == "" {
		return drawn
	}
	others := func(one T) bool { return !regexp.MustCompile(only).MatchString(name(one)) }
	return slices.DeleteFunc(slices.Clone(all), others)
}

func newUnrest(t *testing.T, source *testbed.Server, rnd *rand.Rand) *unrest {
	t.Helper()
	u := &unrest{t: t, rnd: rnd, more: map[string]string{
		"mapping_changed": notCounting, "key_too_long": ", scope: {note: \"n*\"}",
	}}
	u.lead(source)
	all := causes(source)
	u.causes = named(all, all, func(c cause) string { return c.name })
	statements := []string{"CREATE DATABASE shop CHARACTER SET utf8mb4", "CREATE DATABASE vault"}
	for _, h := range happenings {
		statements = append(statements, h.make...)
		t := newShelved(shelved{
			name: h.table, schema: h.schema, ends: h.ends, tail: h.tail, apart: h.apart,
			columns: "(id INT PRIMARY KEY, v INT NOT NULL, w INT NOT NULL DEFAULT 0, note TEXT" + h.keys + ") " + h.options,
		})
		t.put = []string{"INSERT INTO " + t.full() + " (id, v) VALUES (%[1]d, %[2]d) ON DUPLICATE KEY UPDATE v = v + 1"}
		if h.put != "" {
			t.put[0] = fmt.Sprintf(h.put, t.full())
		}
		u.rows = append(u.rows, t)
	}
	for _, c := range u.causes {
		statements = append(statements, c.make...)
	}
	for _, table := range u.tables() {
		if !table.apart {
			statements = append(statements, table.create())
		}
	}
	source.Exec(t, statements...)
	return u
}

// tables are all that are mapped.
func (u *unrest) tables() []*shelved {
	all := slices.Clone(u.rows)
	for _, c := range u.causes {
		all = append(all, c.tables...)
	}
	return all
}

// mappings are those of all tables, and what is done about gaps and first starts.
func (u *unrest) mappings() string {
	text := "on_gap: invalidate\non_first_start: invalidate\nmappings:\n"
	for _, t := range u.tables() {
		if !t.apart {
			text += t.mapping(u.more[t.name])
		}
	}
	return text
}

// notCounting is what the mapping says until it is changed: an UPDATE of v is nothing to it.
const notCounting = ", columns: [w]"

func (u *unrest) shelves() []*shelf { return []*shelf{u.answering, u.passing} }

// rightsOf are those of freshet in each Redis.
var rightsOf = map[bool]string{true: "+@all", false: "+@all -scan -info"}

// rig is one for a Redis of its own.
func (u *unrest) rig(answers bool) *rig {
	u.t.Helper()
	r := newRig(u.t, u.source, strings.Fields("--user freshet on >secret ~* &* "+rightsOf[answers])...)
	r.mayRead("depot.*", "vault.*")
	r.cfg.redis, r.cfg.d, r.cfg.mappings = ", username: freshet, password: secret", loadD, u.mappings()
	if !answers {
		r.cfg.extra = "scope_rate: 1\n"
	}
	return r
}

// embedded starts two freshets.
func (u *unrest) embedded() {
	u.t.Helper()
	u.answering, u.passing = &shelf{rig: u.rig(true)}, &shelf{rig: u.rig(false)}
	u.reading = []*rig{u.answering.rig, u.passing.rig}
	u.configure = func() {
		for _, r := range u.reading {
			r.configure()
		}
	}
	u.configure()
	for _, r := range u.reading {
		r.run()
	}
	u.forget = func() {
		for _, r := range u.reading {
			r.cfg.dir = filepath.Join(u.t.TempDir(), "data")
		}
		u.configure()
	}
}

// aroundKafka starts a reader, and an invalidator of each group.
func (u *unrest) aroundKafka() {
	u.t.Helper()
	answers, passes := u.rig(true), u.rig(false)
	f := newFleetOn(answers, testbed.SharedKafka(u.t), 0, 0)
	u.fleet = f
	reader := f.prepare("reader", "reader")
	var members []*rig
	for i, of := range []*rig{answers, passes} {
		f.rig = of
		members = append(members, f.prepare("invalidator", fmt.Sprintf("invalidator-%d", i)))
	}
	u.configure = func() {
		reader.write(f.inKafka(f.group()), reader.fromSource("default"))
		for i, m := range members {
			m.write(f.inKafka(u.group(i)), m.toRedis())
		}
	}
	u.configure()
	reader.launch(reader.role)
	for _, m := range members {
		m.launch(m.role)
	}
	u.answering, u.passing = &shelf{rig: members[0]}, &shelf{rig: members[1]}
	u.reading = []*rig{reader}
	u.forget = func() {
		f.topic = f.kafka.NewTopicName(u.t)
		u.configure()
	}
	u.finish()
}

// group is the name of that of a shelf.
func (u *unrest) group(i int) string { return fmt.Sprintf("%s-%d", u.fleet.group(), i) }

// restart starts processes again, each with a change of its configuration.
func (u *unrest) restart(processes []*rig, change func(r *rig)) {
	u.t.Helper()
	for _, r := range processes {
		r.stop()
		change(r)
	}
	u.configure()
	for _, r := range processes {
		r.launchAgain()
	}
}

// processes are those of freshet.
func (u *unrest) processes() []*rig {
	all := slices.Clone(u.reading)
	for _, s := range u.shelves() {
		if !slices.Contains(all, s.rig) {
			all = append(all, s.rig)
		}
	}
	return all
}

// finish waits until all that is committed now is finished everywhere.
func (u *unrest) finish() {
	u.t.Helper()
	for _, r := range u.processes() {
		r.finish(3 * time.Minute)
	}
}

// statements has all causes come that statements have, again and again, and then each once more.
func (u *unrest) statements() {
	u.t.Helper()
	if len(u.causes) == 0 {
		return
	}
	var live []*shelved
	for _, c := range u.causes {
		live = append(live, c.tables...)
	}
	u.load(live...)
	came := map[string]int{}
	for until := time.Now().Add(testbed.Cut(5*time.Second, 20*time.Second)); time.Now().Before(until); {
		for _, i := range u.rnd.Perm(len(u.causes)) {
			u.come(&u.causes[i])
			came[u.causes[i].name]++
		}
	}
	u.cacheLast(live...)
	for i := range u.causes {
		u.come(&u.causes[i])
	}
	u.quieten()
	u.allIsFresh()
	for i := range u.causes {
		c := &u.causes[i]
		u.stale(fmt.Sprintf("%s, %d times", c.name, came[c.name]+1), c.tables...)
	}
}

// stale says how many keys of tables are stale where freshet cannot answer.
func (u *unrest) stale(what string, tables ...*shelved) {
	u.t.Helper()
	found := u.compare(u.passing, tables...)
	u.t.Logf("%s: without the answer %s", what, found)
	if len(found.stale) == 0 {
		u.t.Errorf("%s: without the answer nothing is stale either, so nothing is shown", what)
	}
}

// come has a cause come.
func (u *unrest) come(c *cause) {
	u.t.Helper()
	conn, err := u.source.DB().Conn(u.t.Context())
	testbed.Must(u.t, err)
	defer conn.Close()
	for _, s := range c.statements() {
		_, err := conn.ExecContext(u.t.Context(), s)
		for deadlock(err) { // with a client
			_, err = conn.ExecContext(u.t.Context(), s)
		}
		if err != nil {
			u.t.Fatalf("%s: %s: %v", c.name, s, err)
		}
	}
}

// cacheLast makes the rows that nobody else writes or reads, and caches them.
func (u *unrest) cacheLast(tables ...*shelved) {
	u.t.Helper()
	for _, t := range tables {
		for n := range lastRows {
			err := u.run(u.t.Context(), t, last+n, t.put)
			for deadlock(err) { // with a client
				err = u.run(u.t.Context(), t, last+n, t.put)
			}
			testbed.Must(u.t, err)
		}
	}
	u.finish()
	u.cacheRows(tables...)
}

// cacheRows caches what the rows that nobody else writes say, also of those that are gone.
func (u *unrest) cacheRows(tables ...*shelved) {
	u.t.Helper()
	for _, t := range tables {
		for n := range lastRows {
			value, err := u.row(u.t.Context(), u.filling.Load(), t, last+n)
			testbed.Must(u.t, err)
			for _, s := range u.shelves() {
				testbed.Must(u.t, s.cache().Set(u.t.Context(), t.key(last+n), value, 0).Err())
			}
		}
	}
}

// quieten waits until writers write no more, all is answered that can be, and no reader fills any more.
func (u *unrest) quieten() {
	u.t.Helper()
	testbed.Must(u.t, u.writers.stop())
	u.finish()
	u.answering.await("answer what is in doubt", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
	// An answer may just have forgotten all keys: then there would be nothing to look at.
	testbed.Eventually(u.t, 3*time.Minute, "readers cache something", func() bool {
		return slices.ContainsFunc(u.tables(), func(t *shelved) bool {
			keys, err := u.answering.cache().Keys(u.t.Context(), t.name+":*").Result()
			return err == nil && len(keys) > 0
		})
	})
	for _, s := range u.shelves() {
		testbed.Must(u.t, s.readers.stop())
	}
	u.finish()
}

// allIsFresh checks that no key is stale where freshet can answer.
func (u *unrest) allIsFresh() {
	u.t.Helper()
	u.compare(u.answering, u.tables()...).verify(u.t)
}
