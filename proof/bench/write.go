package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The lines in the document between which the table stands, and the line that begins a section of it.
const (
	tableBegin   = "<!-- table: written by make bench -->\n"
	tableEnd     = "<!-- end of the table -->\n"
	sectionBegin = "<!-- section "
)

// write puts the sections of this run into the document. What it says of others stays, if there still are such
// sections.
func (b *benchmark) write(file string, results []*result) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var order []string
	for _, s := range b.sections() {
		order = append(order, s.name)
	}
	fresh := map[string]string{}
	for _, r := range results {
		if fresh[r.section.name], err = r.markdown(b.where, b.scale); err != nil {
			return err
		}
	}
	updated, err := replaceSections(string(text), order, fresh)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(updated), 0o644)
}

// replaceSections puts the fresh sections in the place of the document's old ones, all in the given order.
func replaceSections(doc string, order []string, fresh map[string]string) (string, error) {
	before, rest, ok := strings.Cut(doc, tableBegin)
	old, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		return "", fmt.Errorf("the table's place is missing, the lines %q and %q", strings.TrimSpace(tableBegin),
			strings.TrimSpace(tableEnd))
	}
	sections := map[string]string{}
	for _, part := range strings.Split(old, sectionBegin)[1:] {
		name, text, _ := strings.Cut(part, " -->\n")
		sections[name] = text
	}
	for name, text := range fresh {
		sections[name] = "\n" + text + "\n"
	}
	var s strings.Builder
	s.WriteString(before + tableBegin)
	for _, name := range order {
		if text, ok := sections[name]; ok {
			s.WriteString(sectionBegin + name + " -->\n" + text)
		}
	}
	s.WriteString(tableEnd + after)
	return s.String(), nil
}

// markdown is the section as it stands in the document.
func (r *result) markdown(where string, scale float64) (string, error) {
	lines, err := r.lines()
	if err != nil {
		return "", err
	}
	var s strings.Builder
	fmt.Fprintf(&s, "### %s: %s\n\n", r.section.name, r.section.title)
	fmt.Fprintf(&s, "| %s |\n|%s\n", strings.Join(columns(), " | "), strings.Repeat("---|", len(columns())))
	for _, l := range lines {
		fmt.Fprintf(&s, "| %s |\n", strings.Join(l.cells(), " | "))
	}
	rounds := 0
	for _, sample := range r.samples {
		rounds = max(rounds, sample.round)
	}
	fmt.Fprintf(&s, "\n%s; %s; rounds: %d, which took %s", time.Now().Format(time.DateOnly), where, rounds, r.took)
	if len(r.servers) > 0 {
		fmt.Fprintf(&s, "; %s", strings.Join(r.servers, ", "))
	}
	if scale != 1 {
		fmt.Fprintf(&s, "; **scale %s**", strconv.FormatFloat(scale, 'g', 2, 64))
	}
	s.WriteString(".\n")
	return s.String(), nil
}

var (
	cpuModel = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
	memTotal = regexp.MustCompile(`(?m)^MemTotal:\s*(\d+) kB$`)
)

// machine names what was measured, and on what: as much of it as this system tells.
func machine(ctx context.Context) string {
	var parts []string
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		parts = append(parts, "commit "+strings.TrimSpace(string(out)))
	}
	cores := fmt.Sprintf("%d cores", runtime.NumCPU())
	if m := cpuModel.FindStringSubmatch(readText("/proc/cpuinfo")); m != nil {
		cores += " of " + m[1]
	}
	parts = append(parts, cores)
	if m := memTotal.FindStringSubmatch(readText("/proc/meminfo")); m != nil {
		kB, _ := strconv.ParseFloat(m[1], 64)
		parts = append(parts, fmt.Sprintf("%.0f GiB", kB/(1<<20)))
	}
	parts = append(parts, strings.TrimSpace(runtime.GOOS+" "+readText("/proc/sys/kernel/osrelease")))
	return strings.Join(append(parts, runtime.Version()), ", ")
}

func readText(file string) string {
	b, _ := os.ReadFile(file)
	return string(b)
}
