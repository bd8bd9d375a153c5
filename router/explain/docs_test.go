package explain

import (
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/router"
)

// The page about mappings is what users go by, so all of its examples are run: a yaml block is the configuration of
// the console blocks that follow it.
func TestThePageAboutMappingsIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/mappings.md")
	if err != nil {
		t.Fatal(err)
	}
	var specs []spec.Mapping
	configurations, commands := 0, 0
	for i, block := range strings.Split(string(page), "```") {
		switch kind, body, _ := strings.Cut(block, "\n"); {
		case i%2 == 0 || kind == "":
		case kind == "yaml":
			specs = readMappings(t, body)
			configurations++
		case kind == "console":
			for _, c := range strings.Split("\n"+body, "\n$ ")[1:] {
				command, want, _ := strings.Cut(c, "\n")
				if got := runCommand(t, specs, command); strings.TrimSpace(got) != strings.TrimSpace(want) {
					t.Errorf("$ %s\n%s\nwant\n%s\n%s", command, got, want, gocmp.Diff(want, got))
				}
				commands++
			}
		default:
			t.Errorf("a block of %q is not run", kind)
		}
	}
	if configurations < 10 || commands < 15 {
		t.Errorf("only %d configurations and %d commands were found", configurations, commands)
	}
}

// readMappings reads the mappings as freshet does. What a configuration needs besides follows them, so that their lines
// are those of the page.
func readMappings(t *testing.T, body string) []spec.Mapping {
	t.Helper()
	const rest = "\nsource: {addresses: [\"127.0.0.1:3306\"], user: u}\nredis: {addresses: [\"127.0.0.1:6379\"]}\n"
	c, err := config.Parse("freshet.yaml", []byte(body+rest))
	if err != nil {
		t.Fatal(err)
	}
	return c.Mappings
}

// runCommand does what the command line does.
func runCommand(t *testing.T, specs []spec.Mapping, command string) string {
	t.Helper()
	var args []string
	for i, quoted := range strings.Split(command, "'") {
		if i%2 == 1 {
			args = append(args, quoted)
		} else {
			args = append(args, strings.Fields(quoted)...)
		}
	}
	_, err := router.New(specs, router.Options{})
	switch {
	case len(args) == 2 && args[1] == "validate":
		if err == nil {
			return "no problems"
		}
		return err.Error()
	case err != nil:
		return err.Error()
	}
	s := Sample{Table: args[2], Row: []byte(args[3])}
	if len(args) == 6 && args[4] == "--old" {
		s.Old = []byte(args[5])
	}
	x, err := Explain(specs, s)
	if err != nil {
		return err.Error()
	}
	return x.String()
}
