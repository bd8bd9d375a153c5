package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/freshet/freshet/proof/testbed"
)

// browser is a headless Chromium with one tab, and what its console had to say.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(testbed.Chromium(t)),
		chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to run as root otherwise
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b := &browser{t: t, ctx: ctx}
	var listener sync.WaitGroup
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the process
			t.Errorf("stop the browser: %v", err)
		}
		cancel()
		stop()
		listener.Wait()
	})
	testbed.Must(t, chromedp.Do(ctx)) // starts it
	messages := chromedp.Console(ctx)
	listener.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.complaints = append(b.complaints, fmt.Sprintf("%s: %s %s", m.Type, m.Text, m.URL))
			b.mu.Unlock()
		}
	})
	return b
}

// said returns what is on the console since it was last asked, and checks that it can say something at all.
func (b *browser) said() string {
	b.t.Helper()
	const marker = "the test asks"
	b.evaluate(`console.log("`+marker+`")`, nil)
	testbed.Eventually(b.t, patience, "the console shows what is logged", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.complaints) > 0 && strings.Contains(b.complaints[len(b.complaints)-1], marker)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Join(b.complaints[:len(b.complaints)-1], "\n")
	b.complaints = nil
	return all
}

// evaluate runs an expression on the page, which the page's policy does not forbid to a debugger.
func (b *browser) evaluate(expression string, into *bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if into == nil {
		_, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](expression))
		testbed.Must(b.t, err)
		return
	}
	yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
	testbed.Must(b.t, err)
	*into = yes
}

// sees waits until an expression is true on the page.
func (b *browser) sees(what, expression string) {
	b.t.Helper()
	testbed.Eventually(b.t, patience, what, func() (yes bool) {
		b.evaluate(expression, &yes)
		return yes
	})
}

// picture keeps what is on the page, where FRESHET_PICTURES says.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("FRESHET_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	testbed.Must(b.t, err)
	testbed.Must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

func TestThePageShowsHowThingsStand(t *testing.T) {
	s := newShop(t)
	f := s.run()
	stop := s.load()
	b := newBrowser(t)
	testbed.Must(t, chromedp.Do(b.ctx, chromedp.Navigate(f.url()+"/")))
	b.sees("the word is Fresh", `document.getElementById("word").textContent.endsWith("Fresh")`)
	b.sees("the sentence says until when",
		`document.getElementById("sentence").textContent.startsWith("all that was committed until")`)
	b.sees("rows flow", `/shop.*[1-9]\d* rows\/s/.test(document.getElementById("path").textContent)`)
	b.sees("a stage is named as the slowest", `document.querySelectorAll("#path .slowest").length === 1`)
	b.sees("every stage was passed",
		`document.getElementById("path").children.length === 7 && !document.getElementById("path").textContent.includes("nothing passed")`)
	b.sees("one partition needs no table", `document.getElementById("partitions").hidden`)
	b.sees("the hottest tables are named, and no key", `document.getElementById("hot-table-rows").textContent.includes("shop.product") &&
		!document.documentElement.innerHTML.includes("product:")`)
	b.picture("fresh")
	testbed.Must(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(320, 700)))
	b.sees("it fits on the narrowest screen", `document.documentElement.scrollWidth <= 320`)
	b.picture("narrow")
	testbed.Must(t, chromedp.Do(b.ctx, chromedp.ResetViewport()))
	if said := b.said(); said != "" {
		t.Errorf("the console says: %s", said)
	}

	s.source.Exec(t, "TRUNCATE shop.product")
	b.sees("what was in doubt, and how that ended", `!document.getElementById("ended").hidden &&
		/table truncated[^]*truncate of table shop.product[^]*\nanswered: \d+ keys forgotten/i.test(document.getElementById("ended-rows").textContent)`)
	b.sees("nothing is in doubt any more", `document.getElementById("doubts").hidden`)
	b.picture("ended")

	testbed.Must(t, s.redis.Stop())
	b.sees("the word is Behind", `document.getElementById("word").textContent.endsWith("Behind")`)
	b.sees("the sentence names Redis", `document.getElementById("sentence").textContent.includes("`+s.redis.Addr+`")`)
	b.sees("the alarm is shown", `document.getElementById("alarm-rows").textContent.includes("redis away")`)
	b.picture("behind")
	testbed.Must(t, s.redis.Start(t.Context()))
	b.sees("it is Fresh again", `document.getElementById("word").textContent.endsWith("Fresh")`)
	if said := b.said(); said != "" {
		t.Errorf("the console says: %s", said)
	}
	b.evaluate(`document.querySelector("#hot-keys > summary").click()`, nil)
	b.sees("the hottest keys are shown to who asks",
		`/^category:\d:products\d/.test(document.getElementById("hot-key-rows").firstElementChild?.textContent)`)
	b.picture("hot")
	b.evaluate(`document.querySelector("#hot-keys > summary").click()`, nil)
	b.sees("and forgotten afterwards", `document.getElementById("hot-key-rows").children.length === 0`)
	if said := b.said(); said != "" {
		t.Errorf("the console says: %s", said)
	}
	stop()

	f.Stop(t, patience)
	b.sees("it says that it lost the connection",
		`document.getElementById("gone").textContent.startsWith("Disconnected since")`)
	b.picture("gone")
	html, err := chromedp.Run(b.ctx, chromedp.OuterHTML("html"))
	testbed.Must(t, err)
	if regexp.MustCompile(`product:\d`).MatchString(html) {
		t.Error("the page names a key")
	}
}

// Each node has a row of its own, which says how it is.
func TestThePageShowsTheNodesOfACluster(t *testing.T) {
	s := newShop(t)
	cluster := testbed.Cluster(t, testbed.ClusterOptions{
		Masters: 2, Args: []string{"--cluster-require-full-coverage", "no"},
	})
	gone := cluster.Masters[1]
	f := s.start("run", s.reads(), s.embedded(), fmt.Sprintf("redis: {mode: cluster, addresses: [%q]}\n",
		cluster.Masters[0].Addr))
	f.await("fresh")
	b := newBrowser(t)
	testbed.Must(t, chromedp.Do(b.ctx, chromedp.Navigate(f.url()+"/")))
	b.sees("each node has its slots", `document.getElementById("node-rows").children.length === 2 &&
		Array.from(document.getElementById("node-rows").children).every((tr) => /8.192/.test(tr.children[1].textContent) && tr.children[3].textContent === "answers")`)
	b.picture("nodes")
	for _, m := range cluster.Masters {
		m.Do(t, "cluster", "delslots", "5", "6")
	}
	b.sees("slots that no node has", `document.getElementById("unserved").textContent.startsWith("2 slots have no node")`)
	testbed.Must(t, gone.Kill())
	b.sees("a node that is away", `/`+gone.Addr+`.*is away since/.test(document.getElementById("node-rows").textContent)`)
	testbed.Must(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(320, 700)))
	b.sees("it fits on the narrowest screen", `document.documentElement.scrollWidth <= 320`)
	b.picture("node-away")
	if said := b.said(); said != "" {
		t.Errorf("the console says: %s", said)
	}
}

// pageOfAnInvalidator looks at the page of a process that has some of several partitions and no source, while keys are
// being given up.
func pageOfAnInvalidator(t *testing.T, f *freshet) {
	b := newBrowser(t)
	testbed.Must(t, chromedp.Do(b.ctx, chromedp.Navigate(f.url()+"/")))
	b.sees("each partition has a row, with its lag in seconds and in records", `document.getElementById("partition-rows").children.length === 2 &&
		Array.from(document.getElementById("partition-rows").children).every((tr) => /s$/.test(tr.children[1].textContent) && /^[0-9]/.test(tr.children[2].textContent))`)
	b.sees("only its own stages are shown", `document.getElementById("path").children.length === 4`)
	b.sees("keys pass", `/[1-9]\d* keys\/s/.test(document.getElementById("path").lastElementChild.textContent)`)
	b.sees("dead letters are counted", `/Dead letters[1-9]\d* keys?/.test(document.getElementById("figures").textContent)`)
	b.picture("invalidator")
	if said := b.said(); said != "" {
		t.Errorf("the console says: %s", said)
	}
}

// With a token the page asks for it before it shows keys, on loopback as well, and says when it is not the right one.
func TestKeysAreShownToWhoHoldsTheToken(t *testing.T) {
	const token = "s3cret"
	t.Setenv("FRESHET_ADMIN_TOKEN", token)
	s := newShop(t)
	f := s.run()
	s.load()
	b := newBrowser(t)
	testbed.Must(t, chromedp.Do(b.ctx, chromedp.Navigate(f.url()+"/")))
	b.sees("the tables are there", `!document.getElementById("hot").hidden`)
	b.evaluate(`document.querySelector("#hot-keys > summary").click()`, nil)
	asks := `!document.getElementById("hot-ask").hidden && document.getElementById("hot-key-rows").children.length === 0`
	b.sees("it asks", asks)
	give := func(what string) {
		b.evaluate(`document.getElementById("hot-token").value = "`+what+
			`"; document.getElementById("hot-ask").requestSubmit()`, nil)
	}
	give("wrong")
	b.sees("it says that it was wrong, and asks again", asks+` && !document.getElementById("hot-wrong").hidden`)
	give(token)
	b.sees("the keys are shown",
		`document.getElementById("hot-ask").hidden && /^category:/.test(document.getElementById("hot-key-rows").textContent)`)
}

// The page says what is in doubt while that is answered, and how it ended. One freshet is put through a gap, a
// TRUNCATE, a Redis with older data and, with Kafka, a partition that loses records, one after the other.
func TestThePageTellsTheStoryOfEachDoubt(t *testing.T) {
	logs := []string{"kafka"}
	if testbed.Soak() {
		logs = append(logs, "embedded")
	}
	for _, kind := range logs {
		t.Run(kind, func(t *testing.T) {
			s := newShop(t)
			s.source.Exec(t, "INSERT INTO shop.note WITH RECURSIVE n (id) AS "+
				"(SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 499) SELECT id, 'a' FROM n")
			log, k, topic := s.embedded(), (*testbed.KafkaCluster)(nil), ""
			if kind == "kafka" {
				k = testbed.SharedKafka(t)
				topic = k.NewTopicName(t)
				log = fmt.Sprintf("eventlog: {kind: kafka, kafka: {brokers: [%q], topic: %q, group: %q, partitions: 2, "+
					"replication_factor: 1}}\n", strings.Join(k.Brokers(), `", "`), topic, topic)
			}
			start := func() *freshet {
				return s.start("run", s.reads(), s.deletes(), log, "on_gap: invalidate\nscope_rate: 200\n")
			}
			const change = "UPDATE shop.note SET text = CONCAT(text, 'b')"
			f := start()
			f.await("fresh")
			f.Stop(t, patience)
			s.source.Exec(t, change)
			s.source.ResetBinlogs(t)
			s.fill()
			b := newBrowser(t) // which takes as long as an answer, on a busy machine
			f = start()
			b.visits(f)
			b.tells("binlog gap", `has a gap after`, `[1-9]\d* keys forgotten`)

			s.fill()
			s.source.Exec(t, "TRUNCATE shop.product")
			b.sees("how far the answer is", `/table truncated[^]*\d+ % of about [\d,]+, [\d.,]+ per second, about [\d.]+ m?s left/.test(
				document.getElementById("doubts").textContent)`)
			b.tells("table truncated", `truncate of table shop\.product`, `[1-9]\d* keys forgotten`)

			s.stamped(kind)
			s.fill()
			s.redis.Do(t, "save")
			s.source.Exec(t, change)
			s.forgets()
			s.stamped(kind)
			testbed.Must(t, s.redis.Kill())
			testbed.Must(t, s.redis.Start(t.Context()))
			b.tells("redis changed", `may be back`, `[1-9]\d* keys forgotten, by doing the changes again`)
			b.picture("stories-" + kind)
			if kind != "kafka" {
				return
			}
			f.Stop(t, patience)
			s.fill()
			s.source.Exec(t, change)
			if code := s.start("reader --until-caught-up", s.reads(), log).Wait(t, patience); code != 0 {
				t.Fatalf("reader: exit code %d", code)
			}
			k.DeleteRecords(t, topic, 0, -1)
			b.visits(start())
			b.tells("records lost", `retention deleted what lay between`, `[1-9]\d* keys of partitions 0 were forgotten`)
			if n := len(s.redis.Client().Keys(t.Context(), "product:*").Val()); n == 0 || n == filled {
				t.Errorf("%d of %d keys of products are left: those of the other partition should be", n, filled)
			}
			b.picture("lost")
		})
	}
}

// visits has the browser show the page of a freshet, once there is one.
func (b *browser) visits(f *freshet) {
	b.t.Helper()
	testbed.Eventually(b.t, patience, "the page is there", func() bool {
		return chromedp.Do(b.ctx, chromedp.Navigate(f.url()+"/")) == nil && b.there()
	})
}

// filled is how many keys of each table are cached: more than are forgotten within a second.
const filled = 500

// fill caches them.
func (s *shop) fill() {
	s.t.Helper()
	var pairs []any
	for id := range filled {
		pairs = append(pairs, fmt.Sprintf("product:%d", id), "old", fmt.Sprintf("note:%d", id), "old")
	}
	testbed.Must(s.t, s.redis.Client().MSet(s.t.Context(), pairs...).Err())
}

// stamped waits until freshet has written into Redis up to where it has finished all. Of a topic that need not be the
// end.
func (s *shop) stamped(kind string) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "redis is stamped", func() bool {
		c := s.redis.Client()
		keys, err := c.Keys(s.t.Context(), "freshet:stamp:*").Result()
		testbed.Must(s.t, err)
		return len(keys) == 1 &&
			(kind == "kafka" || strings.Contains(c.Get(s.t.Context(), keys[0]).Val(), `"`+s.source.GTIDs(s.t)+`"`))
	})
}

// forgets waits until no key of a note is cached.
func (s *shop) forgets() {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "the keys of notes are deleted", func() bool {
		return len(s.redis.Client().Keys(s.t.Context(), "note:*").Val()) == 0
	})
}

// tells waits until the page has said both what was in doubt and how that ended.
func (b *browser) tells(cause, message, answer string) {
	b.t.Helper()
	b.isTold(cause, message)
	b.sees("the word is Doubtful", `document.getElementById("word").textContent.endsWith("Doubtful")`)
	b.isToldTheEnd(cause, message, answer)
}

// isTold waits until the page says what is in doubt, and that it is being answered.
func (b *browser) isTold(cause, message string) {
	b.t.Helper()
	b.sees(cause+" is in doubt, and is being answered", `!document.getElementById("doubts").hidden &&
		/`+cause+`[^]*`+message+`[^]*being answered/.test(document.getElementById("doubts").textContent)`)
}

// isToldTheEnd waits until the page says how a doubt ended, and that nothing is in doubt any more.
func (b *browser) isToldTheEnd(cause, message, answer string) {
	b.t.Helper()
	b.sees(cause+" has ended", `document.getElementById("doubts").hidden &&
		/`+cause+`[^]*`+message+`[^]*\nanswered: `+answer+`/.test(document.getElementById("ended-rows").textContent)`)
	b.sees("the word is Fresh", `document.getElementById("word").textContent.endsWith("Fresh")`)
}

// there reports whether the page is one of freshet's.
func (b *browser) there() (yes bool) {
	b.t.Helper()
	b.evaluate(`document.getElementById("word") !== null`, &yes)
	return yes
}
