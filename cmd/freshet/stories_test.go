package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

// tellers are a reader and an invalidator that are put through one thing after the other, and never end. The site is
// that of the invalidator.
type tellers struct {
	*site
	reader  *site
	reading *testbed.Running
	running *testbed.Running
}

// cacheRows caches what the rows hold, as readers do.
func (p *tellers) cacheRows() {
	p.t.Helper()
	for key, value := range p.held() {
		testbed.Must(p.t, p.redis.Client().Set(p.t.Context(), key, value, 0).Err())
	}
}

// held returns what each key should hold.
func (p *tellers) held() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	for _, table := range []string{"product", "note"} {
		rows, err := p.source.DB().QueryContext(p.t.Context(), "SELECT id, price FROM shop."+table)
		testbed.Must(p.t, err)
		for rows.Next() {
			var id, price int
			testbed.Must(p.t, rows.Scan(&id, &price))
			all[fmt.Sprintf("%s:%d", table, id)] = fmt.Sprint(price)
		}
		testbed.Must(p.t, rows.Err())
		testbed.Must(p.t, rows.Close())
	}
	return all
}

// stale returns the keys that hold what their rows do not.
func (p *tellers) stale() (stale []string) {
	p.t.Helper()
	held := p.held()
	for _, key := range p.allCached() {
		if p.redis.Client().Get(p.t.Context(), key).Val() != held[key] {
			stale = append(stale, key)
		}
	}
	return stale
}

func (p *tellers) change() { p.source.Exec(p.t, "UPDATE shop.product SET price = price + 1") }

// frozen does something while a process is stopped, which then goes on.
func (p *tellers) frozen(r *testbed.Running, do func()) {
	p.t.Helper()
	r.Signal(syscall.SIGSTOP)
	defer r.Signal(syscall.SIGCONT)
	do()
}

// tells waits until the invalidator has said what is in doubt, that it is being answered, and how that ended.
func (p *tellers) tells(cause alarm.Kind, message, answer string, happens func()) {
	p.t.Helper()
	seen, answered := false, false
	happens()
	p.await(fmt.Sprintf("the story of %s", cause), func(st *app.Status) bool {
		for _, d := range st.Doubts {
			if d.Cause == cause && strings.Contains(d.Message, message) {
				seen = seen || st.State == app.Doubtful && !d.Since.IsZero()
				answered = answered || d.Answer != ""
			}
		}
		i := slices.IndexFunc(st.EndedDoubts, func(d doubt.Ended) bool { return d.Cause == cause })
		if i < 0 {
			return false
		}
		d := st.EndedDoubts[i]
		if d.How != doubt.HowAnswered || !strings.Contains(d.Message, message) || !strings.Contains(d.Answer, answer) ||
			!d.Ended.After(d.Since) {
			p.t.Fatalf("%s ended as %+v", cause, d)
		}
		return st.State == app.Fresh && len(st.Doubts) == 0
	})
	if !seen || !answered {
		p.t.Errorf("%s: it was seen to be in doubt: %t, and to be answered: %t", cause, seen, answered)
	}
	if stale := p.stale(); len(stale) > 0 {
		p.t.Errorf("once %s is answered these are stale: %q", cause, stale)
	}
}

// One freshet, which is never started again, goes through a gap in the binlog, a TRUNCATE, a Redis with older data and
// a partition that loses records, one after the other. What the page shows has the story of each from cause to end, and
// in the end nothing is in doubt, and nothing stale.
func TestOneFreshetTellsTheStoryOfEachDoubt(t *testing.T) {
	t.Parallel()
	k := testbed.SharedKafka(t)
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source).around(t, k)
		s.extra = passGaps + "scope_rate: 20\n"
		s.mappings = `[{table: shop.product, keys: ["product:{id}"]}, {table: shop.note, keys: ["note:{id}"]}]`
		source.Exec(t, "CREATE TABLE shop.note (id INT PRIMARY KEY, price INT NOT NULL)")
		for id := range 30 {
			s.write(id)
			source.Exec(t, fmt.Sprintf("INSERT INTO shop.note VALUES (%d, 1)", id))
		}
		p := &tellers{site: s.part("invalidator"), reader: s.part("reader")}
		p.reading, p.running = p.reader.start("reader"), p.start("invalidator")
		for _, of := range []*site{p.reader, p.site} {
			of.await("it is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
		}

		p.cacheRows()
		p.tells(alarm.BinlogGap, "has a gap after", "keys forgotten", func() {
			p.frozen(p.reading, func() {
				p.change()
				p.source.ResetBinlogs(t)
			})
		})
		p.cacheRows()
		p.tells(alarm.TruncatedTable, "of table shop.note: its rows went without row events", "30 keys forgotten", func() {
			p.source.Exec(t, "TRUNCATE TABLE shop.note")
		})
		p.cacheRows()
		p.stampedAroundKafka()
		p.redis.Do(t, "save")
		p.change()
		for id := range 30 {
			p.gone(fmt.Sprintf("product:%d", id))
		}
		p.stampedAroundKafka()
		p.tells(alarm.RedisChanged, "may be back", "keys forgotten, by doing the changes again", func() {
			testbed.Must(t, p.redis.Kill())
			testbed.Must(t, p.redis.Start(t.Context()))
		})
		for id := range 30 {
			source.Exec(t, fmt.Sprintf("INSERT INTO shop.note VALUES (%d, 1)", id))
		}
		p.stampedAroundKafka()
		p.cacheRows()
		p.tells(alarm.RecordsLost, "retention deleted what lay between", "keys of partitions 0 were forgotten", func() {
			p.frozen(p.running, func() {
				p.changeInTopic() // which a fetch may have that is under way
				p.changeInTopic()
				k.DeleteRecords(t, p.topic, 0, -1)
			})
		})

		st := p.status()
		var told []alarm.Kind
		for _, d := range slices.Backward(st.EndedDoubts) {
			told = append(told, d.Cause)
		}
		want := []alarm.Kind{alarm.BinlogGap, alarm.TruncatedTable, alarm.RedisChanged, alarm.RecordsLost}
		if !slices.Equal(told, want) {
			t.Errorf("the stories are %q", told)
		}
		if n := len(p.allCached()); n == 0 || n >= 30 {
			t.Errorf("%d notes are cached in the end: those of the other partitions should be", n)
		}
		for _, r := range []*testbed.Running{p.reading, p.running} {
			if code := r.Stop(t, patience); code != exitDone {
				t.Errorf("exit code %d", code)
			}
		}
	})
}

// changeInTopic changes all products, and returns once that is in the first partition of the topic.
func (p *tellers) changeInTopic() {
	p.t.Helper()
	p.asClient(func(c *broker.Client) {
		before, err := c.End(p.t.Context(), p.topic, 0)
		testbed.Must(p.t, err)
		p.change()
		testbed.Eventually(p.t, patience, "the change is in the topic", func() bool {
			end, err := c.End(p.t.Context(), p.topic, 0)
			testbed.Must(p.t, err)
			return end > before
		})
	})
}
