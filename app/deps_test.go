package app

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/freshet/freshet/"

// mayImport is the direction of dependencies that docs/architecture.md promises: cmd → app → stages → event. What a
// package may reach of this module, directly or through others; a package that is not here must say where it stands.
var mayImport = map[string][]string{
	"event": nil,
	// credential reads passwords and certificates, for whatever logs in.
	"credential":                nil,
	"credential/credentialtest": {"credential"},
	"event/float":               nil,
	"event/asof":                nil,
	"doubt/alarm":               nil,
	"doubt":                     {"event", "doubt/alarm", "retry"},
	// doubttest is the suite of every keeper.
	"doubt/doubttest": {"event", "doubt/alarm", "doubt", "retry"},
	// config reads the file into what router compiles; neither knows the other.
	"config/spec":          {"event"},
	"config/spec/spectest": {"event", "config/spec"},
	"config":               {"credential", "event", "config/spec"},
	"retry":                {"event"},
	"router":               {"event", "config/spec", "event/document", "router/query"},
	"router/lint":          {"event", "config/spec", "event/document", "router/query", "router", "router/shape"},
	"router/keyspace":      {"event", "config/spec", "event/document", "router/query", "router", "router/shape"},
	"router/shape":         {"event", "config/spec", "event/document", "router/query", "router"},
	"router/explain":       {"event", "config/spec", "event/document", "router/query", "router"},
	// Batches for the tests of whatever encodes them.
	"router/routertest": {"event", "config/spec", "event/document", "router/query", "router"},
	"event/latency":     {"event"},
	"invalidator/hot":   {"event"},

	// The SQL of a rebuild, read and not run; and what runs it.
	"router/query": nil,
	"invalidator/rebuild": {
		"credential", "event", "event/float", "event/document", "router/query", "canal/login", "retry",
	},
	"canal/login": {"credential"},

	// What a row looks like as a value.
	"event/document": {"event"},

	"canal/charset":                   {"event"},
	"canal/charset/internal/generate": nil,
	"canal/binlog":                    {"event", "event/float", "canal/charset"},
	"canal/ddl":                       {"event", "canal/charset"},
	"canal/schema":                    {"event", "event/float", "canal/binlog", "canal/charset", "canal/ddl", "retry"},
	"canal/walk": {
		"event", "event/float", "retry", "canal/binlog", "canal/charset", "canal/ddl", "canal/schema",
	},
	"canal": {
		"credential", "event", "event/float", "event/asof", "doubt/alarm", "doubt", "canal/login", "retry",
		"canal/binlog", "canal/charset", "canal/ddl", "canal/schema",
	},

	"eventlog":            {"event"},
	"eventlog/checkpoint": {"event", "retry"},
	"eventlog/stash":      {"event", "eventlog/checkpoint", "retry"},
	"eventlog/embedded": {
		"event", "doubt/alarm", "doubt", "eventlog", "eventlog/checkpoint",
		"eventlog/stash", "retry", "event/latency",
	},
	"eventlog/checkpoint/checkpointtest": {
		"event", "eventlog/checkpoint", "eventlog/stash", "retry", "config/spec",
		"event/document", "router/query", "router", "router/routertest",
	},
	"eventlog/logtest": {"event", "eventlog"},
	"retry/retrytest":  {"event", "retry"},

	// The Kafka event log: all of it is built on broker, and kafka puts it together.
	"eventlog/kafka/broker": {"credential", "event", "retry"},
	"eventlog/kafka/record": {"event"},
	"eventlog/kafka/producer": {
		"credential", "event", "doubt/alarm", "doubt", "event/asof", "retry", "event/latency",
		"eventlog/kafka/broker", "eventlog/kafka/record",
	},
	"eventlog/kafka/group": {"credential", "event", "retry", "eventlog/kafka/broker"},
	"eventlog/kafka/consumer": {
		"credential", "event", "doubt/alarm", "doubt", "eventlog", "event/asof", "retry", "event/latency",
		"eventlog/kafka/broker", "eventlog/kafka/group", "eventlog/kafka/record",
	},
	"eventlog/kafka/leader": {
		"credential", "event", "retry", "eventlog/checkpoint", "eventlog/stash", "eventlog/kafka/broker",
		"eventlog/kafka/group", "eventlog/kafka/record",
	},
	"eventlog/kafka/doubts": {"credential", "event", "doubt/alarm", "doubt", "retry", "eventlog/kafka/broker"},
	"eventlog/kafka/letters": {
		"credential", "event", "doubt/alarm", "doubt", "retry", "eventlog/kafka/broker", "eventlog/kafka/group",
	},
	"eventlog/kafka": {
		"credential", "event", "doubt/alarm", "doubt", "eventlog", "event/asof", "retry", "event/latency",
		"eventlog/checkpoint",
		"eventlog/stash", "eventlog/kafka/broker",
		"eventlog/kafka/consumer",
		"eventlog/kafka/group", "eventlog/kafka/leader", "eventlog/kafka/letters", "eventlog/kafka/producer",
		"eventlog/kafka/record",
	},

	"invalidator/write": {"event"},
	"invalidator/scope": {
		"event", "eventlog", "retry", "config/spec", "event/document", "router/query", "router", "router/shape",
		"router/keyspace",
	},
	"invalidator/identity": {"event", "doubt/alarm", "doubt", "retry", "invalidator/write"},
	"invalidator": {
		"credential", "event", "eventlog", "event/asof", "retry", "doubt/alarm", "doubt", "event/latency",
		"invalidator/write",
	},

	// admin is given functions: it knows no stage.
	"admin": {"event"},

	// Tests, demo and benchmark look at freshet from outside.
	"proof/testbed/internal/port": nil,
	"proof/testbed/mutant":        nil,
	"proof/testbed/replay":        nil,
	"proof/testbed/proxy":         {"proof/testbed/internal/port"},
	"proof/testbed":               {"proof/testbed/internal/port", "proof/testbed/proxy"},
	"proof/testbed/cmd/testbed":   {"proof/testbed", "proof/testbed/internal/port", "proof/testbed/proxy"},
	"proof/e2e/oracle":            nil, // it says what freshet must do, and must not ask freshet
	"proof/e2e/suites":            {"admin", "event", "proof/testbed", "proof/testbed/internal/port", "proof/testbed/proxy"},
	"proof/e2e": {
		"admin", "event", "proof/e2e/oracle", "proof/testbed", "proof/testbed/internal/port",
		"proof/testbed/proxy",
	},
	"docs":           {},
	"docs/structure": nil,
	"proof/demo":     {"admin", "event", "proof/testbed", "proof/testbed/internal/port", "proof/testbed/proxy"},
	// The benchmark also measures two stages alone: canal and router.
	"proof/bench": {
		"admin", "credential", "event", "invalidator/write", "proof/testbed", "proof/testbed/internal/port",
		"proof/testbed/proxy", "doubt/alarm", "doubt", "canal/login", "canal", "canal/binlog", "event/asof",
		"canal/charset", "canal/ddl", "canal/schema", "event/document", "event/float", "config/spec", "event/latency",
		"router/query", "retry", "router",
	},
}

// wirings may import everything but what stands above them.
var wirings = map[string]string{"app/connect": "app/operate", "app/operate": "cmd/", "app": "cmd/", "cmd/freshet": ""}

func TestDependenciesPointOneWay(t *testing.T) {
	for pkg, deps := range dependencies(t) {
		allowed, known := mayImport[pkg]
		above, wiring := wirings[pkg]
		switch {
		case wiring:
			for _, d := range deps {
				if above != "" && strings.HasPrefix(d, above) || d == "proof/testbed" {
					t.Errorf("%s imports %s", pkg, d)
				}
			}
		case !known:
			t.Errorf("%s is not in the table of dependencies: say there what it may import", pkg)
		default:
			for _, d := range deps {
				if !slices.Contains(allowed, d) {
					t.Errorf("%s imports %s, directly or through others: it may import %v", pkg, d, allowed)
				}
			}
		}
	}
}

// dependencies returns for each package of the module which others of it the package reaches, tests aside.
func dependencies(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join .Deps \" \"}}", module+
		"...").Output()
	must(t, err)
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		pkg, ok := strings.CutPrefix(words[0], module)
		if !ok {
			continue
		}
		all[pkg] = nil
		for _, w := range words[1:] {
			if d, ours := strings.CutPrefix(w, module); ours {
				all[pkg] = append(all[pkg], d)
			}
		}
	}
	for _, p := range []string{"app", "cmd/freshet", "canal", "event"} {
		if _, ok := all[p]; !ok {
			t.Fatalf("go list does not know %s: it found %d packages", p, len(all))
		}
	}
	return all
}
