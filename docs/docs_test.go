// Package docs holds the documentation to what the code does.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/router"
)

// files returns the repository's files of one kind, by their path from its root, with their text.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "..":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(filepath.ToSlash(path), "../")] = string(text)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files *%s: %v", len(all), suffix, err)
	}
	return all
}

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`(?:\]\(|\b(?:href|src)=")([^)"\s]+)|(?m:^ *\[[^\]]+\]:) +(\S+)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the places of a page that a link can lead to, named as GitHub does.
func anchors(page string) map[string]bool {
	all := map[string]bool{"": true}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		all[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages, headings := files(t, ".md"), map[string]map[string]bool{}
	for name, page := range pages {
		headings[name] = anchors(page)
	}
	n := 0
	for name, page := range pages {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
			m[1] += m[2]
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			n++
			target := name
			if to != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), to))
			}
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if !headings[target][anchor] && anchor != "" {
				t.Errorf("%s links to %s, and there is no such heading", name, m[1])
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d links were found", n)
	}
}

// What speaks of a page in the code, in a configuration or in an alert names it from the root.
func TestEveryPageThatIsNamedExists(t *testing.T) {
	n := 0
	for _, suffix := range []string{".go", ".md", ".yaml", ".json", "Makefile"} {
		for name, text := range files(t, suffix) {
			for _, page := range regexp.MustCompile(`\bdocs/[\w/.-]*\w\.(md|json|png)\b`).FindAllString(text, -1) {
				if _, err := os.Stat(filepath.Join("..", page)); err != nil {
					t.Errorf("%s names %s: %v", name, page, err)
				}
				n++
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d names were found", n)
	}
}

func TestEveryTestThatIsNamedExists(t *testing.T) {
	declared := map[string]bool{}
	for _, text := range files(t, "_test.go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			declared[m[1]] = true
		}
	}
	for name, page := range files(t, ".md") {
		for _, named := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(page, -1) {
			if !declared[named] {
				t.Errorf("%s names %s, which does not exist", name, named)
			}
		}
	}
}

// Each case of the table has a test, and a mutant that one of its tests catches.
func TestEveryCaseHasATestAndAMutant(t *testing.T) {
	_, page, _ := strings.Cut(files(t, ".md")["docs/guarantees.md"], "\n## What goes wrong elsewhere\n")
	page, _, _ = strings.Cut(page, "\n## ")
	mutants := files(t, ".patch")
	tested := regexp.MustCompile(`(?m)^Test: (Test\w+)`)
	n := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \|$`).FindAllStringSubmatch(page, -1) {
		n++
		cells := strings.Split(row[2], " | ")
		if row[1] != strconv.Itoa(n) || len(cells) != 4 || !strings.Contains(cells[2], "`Test") {
			t.Errorf("row %s is not case %d with a test and mutants: %q", row[1], n, cells)
			continue
		}
		named := regexp.MustCompile("`([a-z/]+)/([a-z-]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(named) == 0 {
			t.Errorf("case %d names no mutant", n)
		}
		for _, m := range named {
			dir := m[1]
			if dir == "write" || dir == "scope" {
				dir = "invalidator/" + dir
			}
			text, found := mutants[dir+"/testdata/mutants/"+m[2]+".patch"]
			switch test := tested.FindStringSubmatch(text); {
			case !found:
				t.Errorf("case %d names the mutant %s of %s, which does not exist", n, m[2], dir)
			case test == nil || !strings.Contains(cells[2], "`"+test[1]+"`"):
				t.Errorf("case %d names the mutant %s, and not the test that catches it: %v", n, m[2], test)
			}
		}
	}
	if n != 22 {
		t.Errorf("%d cases were found, want 22", n)
	}
}

func TestTheFileMapNamesFilesThatExist(t *testing.T) {
	_, page, _ := strings.Cut(files(t, ".md")["docs/architecture.md"], "## File map")
	page, _, _ = strings.Cut(page, "\n## ")
	n := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([^|]+)` \\| (.*) \\|$").FindAllStringSubmatch(page, -1) {
		dirs := strings.Split(row[1], "`, `")
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join("..", dir)); err != nil {
				t.Error(err)
			}
		}
		for _, file := range regexp.MustCompile("`([a-z*]+\\.go)`").FindAllStringSubmatch(row[2], -1) {
			found, err := filepath.Glob(filepath.Join("..", dirs[0], file[1]))
			if err != nil || len(found) == 0 {
				t.Errorf("%s has no %s: %v", dirs[0], file[1], err)
			}
			n++
		}
	}
	if n < 20 {
		t.Errorf("only %d files were found", n)
	}
}

// A filter that a mapping can have is on the page about mappings and in the commented configuration, and the oracle of
// the end-to-end tests has it, so that random mappings try it. One that encodes is also where the page names all of
// those.
func TestEveryFilterIsWrittenDown(t *testing.T) {
	whole := files(t, "mappings.md")["docs/mappings.md"]
	_, page, _ := strings.Cut(whole, "\n## Filters\n")
	page, _, _ = strings.Cut(page, "\n## ")
	var table strings.Builder
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`[^|]*`"+`) \|`).FindAllStringSubmatch(page, -1) {
		table.WriteString(row[1])
	}
	comment := regexp.MustCompile(`sku\|lower.*# (.*)`).FindString(files(t, "freshet.yaml")["deploy/freshet.yaml"])
	oracle := files(t, ".go")["proof/e2e/oracle/template.go"]
	for _, name := range router.Filters() {
		for where, text := range map[string]string{
			"the table of docs/mappings.md": table.String(), "the comment in deploy/freshet.yaml": comment,
			"proof/e2e/oracle/template.go": oracle,
		} {
			if !regexp.MustCompile("[`\" ]" + name + "([`\": ]|$)").MatchString(text) {
				t.Errorf("filter %s is not in %s", name, where)
			}
		}
		for _, heading := range []string{"Which keys a mapping can have made", "Keys that go wrong"} {
			_, text, _ := strings.Cut(whole, "\n## "+heading+"\n")
			text, _, _ = strings.Cut(text, "\n## ")
			if f := (router.Filter{Name: name}); f.Encodes() && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("filter %s encodes, and is not in %q of docs/mappings.md", name, heading)
			}
		}
	}
}

func TestMetricsAlarmsAndAlertsThatAreNamedExist(t *testing.T) {
	pages := files(t, ".md")
	rules, err := os.ReadFile("../deploy/prometheus/freshet.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "docs/kafka.md", "docs/architecture.md"} {
		page := fenced.ReplaceAllString(pages[name], "")
		for _, metric := range regexp.MustCompile("`(freshet_[a-z0-9_]+)").FindAllStringSubmatch(page, -1) {
			if !strings.Contains(pages["docs/metrics.md"], "`"+metric[1]+"`") {
				t.Errorf("%s names %s, which is not in docs/metrics.md", name, metric[1])
			}
		}
		for _, kind := range regexp.MustCompile("alarm `([a-z_]+)`").FindAllStringSubmatch(page, -1) {
			if !slices.Contains(alarm.Kinds(), alarm.Kind(kind[1])) {
				t.Errorf("%s names the alarm %s, which does not exist", name, kind[1])
			}
		}
		for _, alert := range regexp.MustCompile(`\bFreshet[A-Z]\w+`).FindAllString(page, -1) {
			if !strings.Contains(string(rules), "alert: "+alert+"\n") {
				t.Errorf("%s names the alert %s, which does not exist", name, alert)
			}
		}
	}
}

func TestTheFilesOfTheKafkaPageAreValid(t *testing.T) {
	page := files(t, ".md")["docs/kafka.md"]
	t.Chdir(t.TempDir())
	write(t, "mysql-password", "secret\n")
	for _, name := range []string{"reader.yaml", "invalidator.yaml"} {
		m := regexp.MustCompile("(?s)```yaml\n(# " + name + "\n.*?)```").FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("%s is not on the page", name)
		}
		write(t, name, m[1])
		if _, err := config.Load(name); err != nil {
			t.Error(err)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheCommandsThatCreateTopicsAreThoseThatAreMeant(t *testing.T) {
	page := files(t, ".md")["docs/kafka.md"]
	c, err := broker.New(broker.Options{Brokers: []string{"kafka-1:9092"}})
	if err != nil {
		t.Fatal(err)
	}
	names, sizing := broker.Names{Topic: "freshet.invalidations"}, broker.Sizing{Replication: 3}
	delays := []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}
	for _, topic := range append(broker.ReaderTopics(names, "main", sizing),
		broker.InvalidatorTopics(names, "freshet", delays, sizing)...) {
		if command := c.CreateCommand(topic); !strings.Contains(page, "\n"+command+"\n") {
			t.Errorf("this is not on the page:\n%s", command)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// others are parts of sentences that are not freshet's: the words of Kafka and of Go, and freshet's own where a word
// is put in.
var others = []string{
	"connection refused", "[19] Not Enough Replicas",
	"Authentication failed during authentication due to invalid credentials",
	"tls: failed to verify certificate: x509: certificate signed by unknown authority", "(SCRAM-SHA-512)", "(…)",
	"may not Write topic", "may not Read topic", "may not Read group", "may not Create topic",
	"--operation Create --topic", "join consumer group",
}

// joint is where a sentence may be put together of several.
var joint = regexp.MustCompile(`…|[:;] |, or `)

// What the page says that freshet says must be in its source, piece by piece: a sentence that is changed there is to
// be changed here.
func TestSentencesThatAreQuotedAreSaid(t *testing.T) {
	var source strings.Builder
	for name, text := range files(t, ".go") {
		if !strings.HasSuffix(name, "_test.go") {
			source.WriteString(text)
		}
	}
	said := regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(source.String(), "")
	_, page, found := strings.Cut(files(t, ".md")["docs/kafka.md"], "## What each failure looks like")
	if !found {
		t.Fatal("the section is not there")
	}
	n := 0
	for _, quote := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(quote[1], "…") && strings.Count(quote[1], " ") < 2 || strings.HasPrefix(quote[1], "freshet ") {
			continue // a name or a command
		}
		rest := quote[1]
		for _, o := range others {
			rest = strings.ReplaceAll(rest, o, "…")
		}
		for _, piece := range joint.Split(rest, -1) {
			piece = strings.Trim(piece, " :;,.()")
			if piece != "" && !strings.Contains(said, piece) {
				t.Errorf("%q of\n%s\nis said nowhere", piece, quote[1])
			}
			n++
		}
	}
	if n < 50 {
		t.Errorf("only %d pieces were found", n)
	}
}

type turn struct {
	phrase, instead string
	one             bool // word replaces it, so it is looked for in code as well
}

// turns are turns of phrase that make a reader stop, with what to write instead: the pages are in plain English, for
// readers whose first language is another one.
var turns = []turn{
	{`\bmend(s|ed|ing)?\b`, "fix", true},
	{`\banew\b`, "again", true},
	{`\bbeside\b`, "next to, alongside, besides, compared with", true},
	{`\bbehind\b`, "after; only lag is behind", false},
	{`\btold\b`, "reported, known, said", false},
	{`\bwho (calls|has|is|made|makes|takes)\b`, "the caller, the process that …", false},
	{`\bwhoever\b`, "name it", true},
	{`\bfor ever\b`, "forever", true},
	{`\bin place of\b`, "instead of", true},
	{`\bof its like\b`, "name it", true},
	{`\bby (the|its) like\b`, "name it", true},
	{`\bwhat (is|was|are|were) to( be)?\b`, "name it", false},
	{`\bis to be\b`, "must be, will be", true},
	{`\bas it comes\b`, "by default", false},
	{`\bvouch(es|ed|ing)?\b`, "confirm", true},
	{`\bmakes? of\b`, "name the result", true},
	{`\bperhaps twice\b`, "at least once", false},
	{`\bthereby\b`, "so", false},
	{`\b(hither|thither)\b`, "to", true},
}

var (
	// quoted is what a page shows rather than says: code, messages, names, and the table that the benchmark writes.
	quoted = regexp.MustCompile("(?ms)^ *```.*?^ *```$|^    [^\n]*$|<!-- table.*<!-- end of the table " +
		"-->|``[^\n]*?``|`[^`\n]*(?:\n[^`\n]+)?`|<!--.*?-->")
	// lag is the one thing that is behind.
	lag = regexp.MustCompile(`(?i)\b(is|are|was|were|falls?|fell|far|seconds|reading is|partition is)\s+behind\b|\blags behind\b`)
)

func TestThePagesAreInPlainEnglish(t *testing.T) {
	for name, page := range files(t, ".md") {
		if name != "README.md" && !strings.HasPrefix(name, "docs/") {
			continue
		}
		blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
		page = lag.ReplaceAllStringFunc(quoted.ReplaceAllStringFunc(page, blank), blank)
		lower := strings.ToLower(page)
		for _, turn := range turns {
			for _, found := range turn.in(page, lower) {
				t.Errorf("%s:%s: write %s", name, found, turn.instead)
			}
		}
	}
}

// In code, comments and messages those are gone that one word replaces.
func TestCodeIsFreeOfOldWords(t *testing.T) {
	for name, code := range files(t, ".go") {
		if name == "docs/docs_test.go" {
			continue
		}
		lower := strings.ToLower(code)
		for _, turn := range turns {
			if !turn.one {
				continue
			}
			for _, found := range turn.in(code, lower) {
				t.Errorf("%s:%s: write %s", name, found, turn.instead)
			}
		}
	}
}

// needed returns the longest text that all matches of an expression have, or "".
func needed(r *syntax.Regexp) (longest string) {
	switch r.Op {
	case syntax.OpLiteral:
		return strings.ToLower(string(r.Rune))
	case syntax.OpConcat, syntax.OpCapture:
		for _, part := range r.Sub {
			if text := needed(part); len(text) > len(longest) {
				longest = text
			}
		}
	}
	return longest
}

// in returns where the turn is in a text: its lines, and what they say. lower is the text in lower case: to look for a
// part of the turn in it first takes a tenth of the time.
func (turn *turn) in(text, lower string) (found []string) {
	parsed, err := syntax.Parse(turn.phrase, syntax.Perl)
	if err != nil {
		panic(err)
	}
	if !strings.Contains(lower, needed(parsed)) {
		return nil
	}
	for _, at := range regexp.MustCompile("(?i)"+turn.phrase).FindAllStringIndex(text, -1) {
		found = append(found, fmt.Sprintf("%d: %q", 1+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]))
	}
	return found
}
