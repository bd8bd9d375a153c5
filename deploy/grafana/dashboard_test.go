package grafana

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTheFileIsWhatIsGenerated(t *testing.T) {
	text, err := JSON()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, File) {
		t.Error("freshet.json is not what rows.go says: run go generate ./grafana")
	}
}

// placed is a panel as Grafana reads it.
type placed struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct{ Expr, LegendFormat, RefID string }
}

func read(t *testing.T) []placed {
	t.Helper()
	var d struct {
		UID    string
		Panels []placed
	}
	if err := json.Unmarshal(File, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID != "freshet" || len(d.Panels) < 30 {
		t.Fatalf("dashboard %q with %d panels", d.UID, len(d.Panels))
	}
	return d.Panels
}

func TestPanelsHaveAPlaceOfTheirOwn(t *testing.T) {
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range read(t) {
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			t.Errorf("%s and %s have the id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		if p.GridPos.X+p.GridPos.W > columns || p.GridPos.W == 0 || p.GridPos.H == 0 {
			t.Errorf("%s is at %+v", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok {
					t.Fatalf("%s lies over %s at %v", p.Title, other, at)
				}
				taken[at] = p.Title
			}
		}
	}
}

func TestEveryPanelAsksForMetricsThatAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\bfreshet_[a-z_]+`)
	suffix := regexp.MustCompile(`_(bucket|count|sum)$`)
	for _, p := range read(t) {
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%q: %+v", p.Title, p)
		}
		for _, q := range p.Targets {
			if q.LegendFormat == "" || strings.Contains(q.Expr, "$all") || !strings.Contains(q.Expr, chosen) {
				t.Errorf("%s: %+v", p.Title, q)
			}
			for _, m := range name.FindAllString(q.Expr, -1) {
				if !bytes.Contains(doc, []byte("| `"+m+"` |")) &&
					!bytes.Contains(doc, []byte("| `"+suffix.ReplaceAllString(m, "")+"` |")) {
					t.Errorf("%s: %s is not in docs/metrics.md", p.Title, m)
				}
			}
		}
	}
}
