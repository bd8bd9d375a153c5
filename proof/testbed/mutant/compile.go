package mutant

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// compiler says whether changed files compile, in milliseconds: it looks at the types of their package alone, and knows
// its imports from what the go command has compiled.
type compiler struct {
	files   *token.FileSet
	imports types.Importer
	// sources are the Go files of each package, by its directory.
	sources map[string][]string
}

// newCompiler is for the package in a directory and all that it imports.
func newCompiler(dir string) (*compiler, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", shared, "-json=ImportPath,Export,Dir,GoFiles", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), sharedEnv...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &compiler{files: token.NewFileSet(), sources: map[string][]string{}}
	compiled := map[string]string{} // files, by import path
	d := json.NewDecoder(out)
	for err == nil {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err = d.Decode(&p); err == nil {
			compiled[p.ImportPath], c.sources[p.Dir] = p.Export, p.GoFiles
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.imports = importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(compiled[path])
	})
	return c, errors.Join(err, cmd.Wait())
}

// check returns what is wrong with files, by absolute path, instead of those that are there.
func (c *compiler) check(changed map[string]string) error {
	dirs := map[string]bool{}
	for path := range changed {
		if filepath.Ext(path) == ".go" {
			dirs[filepath.Dir(path)] = true
		}
	}
	for dir := range dirs {
		var parsed []*ast.File
		for _, name := range c.sources[dir] {
			path := filepath.Join(dir, name)
			var text any // nil: what the file has
			if t, ok := changed[path]; ok {
				text = t
			}
			f, err := parser.ParseFile(c.files, path, text, parser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("it is not Go: %w", err)
			}
			parsed = append(parsed, f)
		}
		if len(parsed) == 0 {
			return fmt.Errorf("the package does not import what is in %s", dir)
		}
		if _, err := (&types.Config{Importer: c.imports}).Check(dir, c.files, parsed, nil); err != nil {
			return fmt.Errorf("it does not compile: %w", err)
		}
	}
	return nil
}
