package app

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/freshet/freshet/doubt"
)

// The alert about a doubt, and the page that says what to do, tell the causes that freshet answers by itself from
// those that wait for an operator.
func TestWhatIsAnsweredByItselfIsSaidToBe(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../deploy/prometheus/freshet.rules.yaml")
	must(t, err)
	found := regexp.MustCompile(`if match "(\^\(table_truncated\|.*\)\$)" \$labels.cause`).FindSubmatch(rules)
	if found == nil {
		t.Fatal("the summary of FreshetDoubt tells no causes apart")
	}
	alert := regexp.MustCompile(string(found[1]))
	page, err := os.ReadFile("../docs/doubts.md")
	must(t, err)
	_, todo, _ := strings.Cut(string(page), "\n### What to do\n")
	for _, c := range doubt.Causes() {
		if alert.MatchString(string(c)) != byItself(c) {
			t.Errorf("the summary of FreshetDoubt, about %s: freshet answers it by itself: %v", c, byItself(c))
		}
		if said := strings.Contains(todo, "\n| `"+string(c)+"` | freshet answers it by itself"); said != byItself(c) {
			t.Errorf("docs/doubts.md, about %s: freshet answers it by itself: %v", c, byItself(c))
		}
	}
}
