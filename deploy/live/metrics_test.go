package live

import (
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/freshet/freshet/proof/testbed"
)

// metric is what docs/metrics.md says about a metric, or what a freshet shows of it.
type metric struct{ kind, labels string }

// documented returns the metrics of docs/metrics.md whose section's title has none of the words.
func documented(t *testing.T, without ...string) map[string]metric {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	testbed.Must(t, err)
	row := regexp.MustCompile("^\\| `(freshet_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\| [^|]+ \\|[^|]*\\|$")
	all, title := map[string]metric{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "## ") {
			title = line
		}
		if slices.ContainsFunc(without, func(w string) bool { return strings.Contains(title, w) }) ||
			!strings.HasPrefix(line, "| `freshet_") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("docs/metrics.md: this row is not of the form | name | type | labels | what | bad |: %s", line)
		}
		all[m[1]] = metric{m[2], strings.ReplaceAll(strings.TrimSpace(m[3]), "`", "")}
	}
	return all
}

// shown returns freshet's own metrics as some freshets show them together.
func shown(t *testing.T, freshets ...*freshet) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, f := range freshets {
		res, err := client.Get(f.url() + "/metrics")
		testbed.Must(t, err)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(io.LimitReader(res.Body, 16<<20))
		testbed.Must(t, err)
		res.Body.Close()
		for name, family := range families {
			if strings.HasPrefix(name, "freshet_") {
				all[name] = metric{strings.ToLower(family.GetType().String()), labels(family)}
			}
		}
	}
	return all
}

func labels(f *dto.MetricFamily) string {
	names := map[string]bool{}
	for _, m := range f.Metric {
		for _, l := range m.Label {
			names[l.GetName()] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// compareWithDocs holds what is shown against what is documented, in both directions.
func compareWithDocs(t *testing.T, got, want map[string]metric) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		switch doc, ok := want[name]; {
		case !ok:
			t.Errorf("%s (%s of %q) is not in docs/metrics.md", name, got[name].kind, got[name].labels)
		case doc != got[name]:
			t.Errorf("%s is a %s with the labels %q; docs/metrics.md has a %s with %q", name, got[name].kind, got[name].labels,
				doc.kind, doc.labels)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[name]; !ok {
			t.Errorf("docs/metrics.md has %s, which no freshet shows", name)
		}
	}
}
