package ddl

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// render writes a statement in one line for comparing.
func render(s Statement) string {
	out := []string{s.Verb.String()}
	if s.XID != "" {
		out = append(out, s.XID)
	}
	if s.Unclear {
		out = append(out, "unclear in "+s.Schema)
	}
	for _, a := range s.Actions {
		out = append(out, renderAction(a))
	}
	return strings.Join(out, "; ")
}

func renderAction(a Action) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", a.Op, a.Table)
	if a.To != (Name{}) {
		fmt.Fprintf(&b, " -> %s", a.To)
	}
	for _, f := range []struct {
		set  bool
		name string
	}{{a.If, "if"}, {a.Replace, "replace"}, {a.Rows, "rows"}, {a.Unclear, "unclear"}} {
		if f.set {
			b.WriteString(" " + f.name)
		}
	}
	if a.Create != nil && !a.Unclear {
		var cols []string
		for _, c := range a.Create.Columns {
			cols = append(cols, renderColumn(c))
		}
		fmt.Fprintf(&b, " (%s)%s", strings.Join(cols, ", "), renderCharset(a.Create.Charset))
	}
	if a.Alter != nil && !a.Unclear {
		for _, c := range a.Alter.Clauses {
			b.WriteString(" [" + renderClause(c) + "]")
		}
		if a.Alter.Convert {
			b.WriteString(" convert")
		}
		b.WriteString(renderCharset(a.Alter.Charset))
	}
	return b.String()
}

func renderClause(c Clause) string {
	s := map[ClauseKind]string{
		AddColumn: "add ", DropColumn: "drop ", ChangeColumn: "change ", RenameColumn: "rename ",
	}[c.Kind]
	if c.If {
		s += "if "
	}
	if c.Old != "" {
		s += c.Old + ": "
	}
	if c.Kind != DropColumn {
		s += renderColumn(c.Column)
	}
	if c.First {
		s += " first"
	}
	if c.After != "" {
		s += " after " + c.After
	}
	return strings.TrimSuffix(s, ": ")
}

func renderColumn(c Column) string {
	s := c.Name
	if t := c.Type.String(); t != "" {
		s += " " + t
	}
	if c.Type.Sized {
		s += fmt.Sprintf("[%d]", c.Type.Length)
	}
	if c.Type.Binary {
		s += " bin"
	}
	return s + renderCharset(c.Type.Charset)
}

func renderCharset(c CharsetClause) string {
	s := ""
	if c.Charset != "" {
		s += " charset=" + c.Charset
	}
	if c.Collation != "" {
		s += " collate=" + c.Collation
	}
	if c.Default {
		s += " charset=default"
	}
	return s
}
