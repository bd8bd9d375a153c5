package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// MappingsHash returns 32 hexadecimal digits that change when the meaning of any mapping does, and with nothing else:
// not with comments, layout, defaults written out, or the order of mappings, keys and columns. The second delete
// counts, wherever it comes from.
func (c *Config) MappingsHash() string {
	texts := make([]string, len(c.Mappings))
	for i, m := range c.Mappings {
		texts[i] = m.canonical()
	}
	slices.Sort(texts)
	sum := sha256.Sum256([]byte(canonicalList(texts)))
	return hex.EncodeToString(sum[:16])
}

// canonical returns the meaning of a mapping as a text that no other mapping has. The text is saved nowhere, but the
// hash of it is: a new key of a mapping may only add to it where it is given.
func (m *Mapping) canonical() string {
	parts := []string{
		"table", m.Table.Value,
		"events", strconv.FormatBool(m.Events.Insert), strconv.FormatBool(m.Events.Update), strconv.FormatBool(m.Events.Delete),
		"columns", canonicalList(sorted(m.Columns)),
		"when", m.When.Value,
		"keys", canonicalList(sorted(m.Keys)),
		"second_delete", m.SecondDelete.String(),
	}
	if m.RateLimit != 0 {
		parts = append(parts, "rate_limit", strconv.Itoa(m.RateLimit))
	}
	return canonicalList(parts)
}

func sorted(texts []Text) []string {
	values := make([]string, len(texts))
	for i, t := range texts {
		values[i] = t.Value
	}
	slices.Sort(values)
	return values
}

// canonicalList joins texts so that different lists give different results.
func canonicalList(texts []string) string {
	var b strings.Builder
	for _, t := range texts {
		b.WriteString(strconv.Itoa(len(t)))
		b.WriteByte(':')
		b.WriteString(t)
	}
	return b.String()
}
