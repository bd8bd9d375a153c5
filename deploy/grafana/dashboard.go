package grafana

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// File is the dashboard as it is shipped.
//
//go:embed freshet.json
var File []byte

// row is a row of panels. Grafana has 24 columns, which the panels of a line share.
type row struct {
	title string
	lines [][]panel
}

// panel is one picture.
type panel struct {
	title, description string
	// unit is one of Grafana's names for units.
	unit    string
	queries []query
	// number shows the last value as a number, not values over time; named shows the series' name, which says it.
	number, named bool
	// warn and bad are where the number turns yellow and red; 0: never.
	warn, bad float64
}

// query is one expression, in which $all stands for the labels that the reader of the dashboard has chosen, and the
// legend of its series.
type query struct{ expr, legend string }

const (
	columns     = 24
	panelHeight = 8
	chosen      = `job=~"$job", instance=~"$instance"`
)

// JSON returns the dashboard as Grafana takes it.
func JSON() ([]byte, error) {
	b := dashboard.NewDashboardBuilder("freshet").
		Uid("freshet").
		Description("Is the cache fresh, and if not, why? docs/metrics.md says what each metric means.").
		Tags([]string{"freshet"}).
		Time("now-1h", "now").
		Refresh("10s").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(labelVariable("job", `label_values(freshet_build_info, job)`)).
		WithVariable(labelVariable("instance", `label_values(freshet_build_info{job=~"$job"}, instance)`))
	id := uint32(0)
	next := func() uint32 { id++; return id }
	for _, r := range rows() {
		b.WithRow(dashboard.NewRowBuilder(r.title).Id(next()))
		for _, line := range r.lines {
			for _, p := range line {
				b.WithPanel(p.build(next(), columns/uint32(len(line))))
			}
		}
	}
	d, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

func labelVariable(name, values string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Datasource(source()).
		Query(dashboard.StringOrMap{String: cog.ToPtr(values)}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{
			Text:  dashboard.StringOrArrayOfString{String: cog.ToPtr("All")},
			Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")},
		})
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func (p panel) build(id, width uint32) cog.Builder[dashboard.Panel] {
	var targets []cog.Builder[variants.Dataquery]
	for i, q := range p.queries {
		expr := strings.ReplaceAll(q.expr, "$all", chosen)
		targets = append(targets, prometheus.NewDataqueryBuilder().
			RefId(string(rune('A'+i))).Expr(expr).LegendFormat(q.legend).Datasource(source()))
	}
	if p.number {
		return p.buildNumber(id, width, targets)
	}
	return timeseries.NewPanelBuilder().
		Id(id).Title(p.title).Description(p.description).Unit(p.unit).Datasource(source()).
		Span(width).Height(panelHeight).
		Min(0).LineWidth(1).FillOpacity(8).ShowPoints(common.VisibilityModeNever).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Targets(targets)
}

func (p panel) buildNumber(id, width uint32, targets []cog.Builder[variants.Dataquery]) cog.Builder[dashboard.Panel] {
	steps := []dashboard.Threshold{{Color: "green"}}
	if p.warn != 0 {
		steps = append(steps, dashboard.Threshold{Value: cog.ToPtr(p.warn), Color: "yellow"})
	}
	if p.bad != 0 {
		steps = append(steps, dashboard.Threshold{Value: cog.ToPtr(p.bad), Color: "red"})
	}
	text := common.BigValueTextModeValue
	if p.named {
		text = common.BigValueTextModeName
	}
	return stat.NewPanelBuilder().
		Id(id).Title(p.title).Description(p.description).Unit(p.unit).Datasource(source()).
		Span(width).Height(panelHeight).
		TextMode(text).GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Targets(targets)
}
