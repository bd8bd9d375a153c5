package docs

import (
	"strings"
	"testing"
)

// figure is one that the README takes from the table of the benchmarks.
type figure struct {
	text      string // what stands around it in the README, with … for the figure
	section   string
	contender string
	measure   string
	ratio     bool // the figure is the first ratio, not the median
}

var figures = []figure{
	{"| one process, `second_delete: none` | **…** |", "catch-up", "freshet, second_delete none", "rows/s", true},
	{"| one process, `second_delete: 200ms` | **…** |", "catch-up", "freshet, second_delete 200ms", "rows/s", true},
	{"| MariaDB, `second_delete: none` | **…** |", "catch-up-mariadb", "freshet, second_delete none", "rows/s", true},
	{"only freshet's own work shows | **…** |", "catch-up-empty", "freshet, second_delete none", "rows/s", true},
	{"(old changes need one delete) | **…** |", "backlog", "freshet, second_delete 1s", "rows/s", true},
	{
		"cores, `second_delete: none` | **…** |", "catch-up-kafka", "through Kafka, 4 partitions, second_delete none",
		"rows/s", true,
	},
	{"default of 12 partitions | **…** |", "catch-up-kafka", "through Kafka, second_delete none", "rows/s", true},
	{
		"12 partitions and `second_delete: 200ms` | **…** |", "catch-up-kafka", "through Kafka, second_delete 200ms", "rows/s",
		true,
	},
	{"a cluster of three masters | **…** |", "catch-up-cluster", "freshet, second_delete none", "rows/s", true},

	{"gone … ms after its commit", "latency", "embedded, 2s", "p50 ms", false},
	{"after its commit (p50; p99 … ms)", "latency", "embedded, 2s", "p99 ms", false},
	{"A bare reader takes … ms", "latency", "bare reader", "p50 ms", false},
	{"on the same two cores it takes … ms in one process", "latency", "Kafka, 200ms, one process", "p50 ms", false},
	{"in one process and … in two", "latency", "Kafka, 200ms, two processes", "p50 ms", false},
	{"in two (p99 … and", "latency", "Kafka, 200ms, one process", "p99 ms", false},
	{"and …); a bare reader with", "latency", "Kafka, 200ms, two processes", "p99 ms", false},
	{"record on the way takes … ms", "latency", "bare reader through Kafka", "p50 ms", false},

	{"rows a process uses … MB", "memory", "a transaction of 5000000 row changes", "resident MB", false},
	{"pending second deletes … MB", "memory", "1100000 pending final deletes", "resident MB", false},
	{"all queues full … MB", "memory", "Redis away, queues full", "resident MB", false},
	{"nothing changes, a process uses … % of a core", "rest", "embedded", "% of a core", false},
	{"both halves in one process, … %", "rest", "Kafka, one process", "% of a core", false},

	{"a value is rebuilt at … of the rate", "actions", "rebuild from row, json", "keys/s", true},
	{"a field of a hash set at …,", "actions", "hash field set", "keys/s", true},
	{"a member of a set moved at …,", "actions", "set member", "keys/s", true},
	{"a key deleted and published at ….", "actions", "delete and publish", "keys/s", true},
}

// in returns the figure as the table has it, "" if it has no such line.
func (f figure) in(table string) string {
	_, section, _ := strings.Cut(table, "<!-- section "+f.section+" -->")
	section, _, _ = strings.Cut(section, "<!-- section ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) < 6 || cells[0] != "| "+f.contender || cells[1] != f.measure {
			continue
		}
		if f.ratio {
			ratio, _, _ := strings.Cut(cells[5], " ÷ ")
			return ratio
		}
		return cells[3]
	}
	return ""
}

// The README says how fast freshet is with figures of the table: one that was measured again must change in both.
func TestTheReadmesFiguresAreTheTables(t *testing.T) {
	pages := files(t, ".md")
	readme := strings.Join(strings.Fields(pages["README.md"]), " ")
	for _, f := range figures {
		measured := f.in(pages["docs/benchmarks.md"])
		if measured == "" {
			t.Errorf("the table has no figure %q of %q in the section %q", f.measure, f.contender, f.section)
			continue
		}
		if text := strings.Replace(f.text, "…", measured, 1); !strings.Contains(readme, text) {
			t.Errorf("the README does not say: %s", text)
		}
	}
}
