// Command structure draws which package of freshet uses which, as it is in the source: docs/structure.md.
//
//	go run ./docs/structure > docs/structure.md
//
// A test in this folder fails while the page is not what the source says.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

const module = "github.com/freshet/freshet/"

func main() {
	page, err := draw(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(page)
}

// pkg is a package of the product. Its names are without the module's.
type pkg struct {
	ImportPath, Doc string
	Imports         []string
}

// uses says which packages or rooms each one uses.
type uses map[string]map[string]bool

func (u uses) add(from, to string) {
	if u[from] == nil {
		u[from] = map[string]bool{}
	}
	if to != "" && to != from {
		u[from][to] = true
	}
}

// draw returns the page for the module that dir is in.
func draw(dir string) ([]byte, error) {
	pkgs, err := load(dir)
	if err != nil {
		return nil, err
	}
	rooms, packages := uses{}, uses{}
	for _, p := range pkgs {
		rooms.add(room(p.ImportPath), "")
		packages.add(p.ImportPath, "")
		for _, to := range p.Imports {
			rooms.add(room(p.ImportPath), room(to))
			packages.add(p.ImportPath, to)
		}
	}
	var b bytes.Buffer
	b.WriteString(`# Structure

Made by ` + "`go run ./docs/structure`" + ` from the imports in the source: do not edit it. What the rooms do together:
[architecture.md](architecture.md). An arrow leads from a package to one that it uses. Where a longer way of arrows leads to
the same package, the direct arrow is left out. Tests, and what proves and measures freshet (` + "`proof`" + `), are not drawn.

## Rooms

`)
	rooms.flowchart(&b, func(string) bool { return true })
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		inside := func(p string) bool { return room(p) == name }
		var members []pkg
		for _, p := range pkgs {
			if inside(p.ImportPath) {
				members = append(members, p)
			}
		}
		fmt.Fprintf(&b, "\n## %s\n\n", name)
		for _, p := range members {
			fmt.Fprintf(&b, "* `%s`: %s\n", p.ImportPath, strings.TrimPrefix(p.Doc, "Package "))
		}
		if len(members) > 2 {
			b.WriteString("\n")
			packages.flowchart(&b, inside)
		}
	}
	return b.Bytes(), nil
}

// load returns the packages of the product that are not for tests alone, in the order of their names.
func load(dir string) ([]pkg, error) {
	list := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", module+"...")
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		p.Imports = slices.DeleteFunc(p.Imports, func(i string) bool { return !strings.HasPrefix(i, module) })
		for i := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(p.Imports[i], module)
		}
		if isProduct(p.ImportPath) {
			all = append(all, p)
		}
	}
	return all, nil
}

// isProduct reports whether the package is part of freshet: helpers of tests and generators are not.
func isProduct(name string) bool {
	switch room(name) {
	case "proof", "docs", "deploy":
		return false
	}
	return !strings.HasSuffix(name, "test") && path.Base(name) != "generate"
}

// room is the folder at the top that a package is in.
func room(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}

// flowchart draws those that are wanted in Mermaid, which GitHub shows as a picture.
func (u uses) flowchart(b *bytes.Buffer, wanted func(string) bool) {
	b.WriteString("```mermaid\nflowchart TD\n")
	for _, from := range slices.Sorted(maps.Keys(u)) {
		if !wanted(from) {
			continue
		}
		fmt.Fprintf(b, "    %s[%s]\n", id(from), from)
		for _, to := range slices.Sorted(maps.Keys(u[from])) {
			if wanted(to) && !u.leads(from, to, wanted) {
				fmt.Fprintf(b, "    %s --> %s\n", id(from), id(to))
			}
		}
	}
	b.WriteString("```\n")
}

// leads reports whether a way over at least one other leads from one to another. Imports have no circles; rooms have
// none as long as the way that a change takes does not run back.
func (u uses) leads(from, to string, wanted func(string) bool) bool {
	for next := range u[from] {
		if next != to && wanted(next) && u.reaches(next, to, wanted, map[string]bool{from: true}) {
			return true
		}
	}
	return false
}

func (u uses) reaches(from, to string, wanted func(string) bool, seen map[string]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for next := range u[from] {
		if next == to || wanted(next) && u.reaches(next, to, wanted, seen) {
			return true
		}
	}
	return false
}

// id is a name that Mermaid takes as that of a node.
func id(name string) string { return strings.NewReplacer("/", "_").Replace(name) }
