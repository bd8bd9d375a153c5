package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// MappingsHash returns 32 hexadecimal digits that change when the meaning of any mapping does, and with nothing else:
// not with comments, layout, defaults written out, or the order of mappings, keys and columns. The second delete
// counts, wherever it comes from. The rate limit and the scope do not: they say how fast and how to find, not what.
func (c *Config) MappingsHash() string { return MappingsHash(c.Mappings) }

// MappingsHash returns the hash of mappings, see [Config.MappingsHash].
func MappingsHash(mappings []spec.Mapping) string {
	texts := make([]string, len(mappings))
	for i, m := range mappings {
		texts[i] = canonical(&m)
	}
	slices.Sort(texts)
	sum := sha256.Sum256([]byte(canonicalList(texts)))
	return hex.EncodeToString(sum[:16])
}

// canonical returns the meaning of a mapping as a text that no other mapping has. The text is saved nowhere, but the
// hash of it is: a new key of a mapping may only add to it where it is given.
func canonical(m *spec.Mapping) string {
	parts := []string{
		"table", m.Table.Value,
		"events", strconv.FormatBool(m.Events.Insert), strconv.FormatBool(m.Events.Update),
		strconv.FormatBool(m.Events.Delete),
		"columns", canonicalList(sorted(m.Columns)),
		"when", m.When.Value,
		"keys", canonicalList(sorted(m.Keys)),
		"second_delete", m.SecondDelete.String(),
	}
	if m.Rebuild != nil {
		parts = append(parts, "rebuild", canonicalRebuild(m.Rebuild))
	}
	if h := m.Hash; h != nil {
		parts = append(parts, "hash", canonicalTexts(h.Key, h.Field, h.Value))
	}
	if s := m.Set; s != nil {
		parts = append(parts, "set", canonicalTexts(s.Key, s.Member))
	}
	if z := m.ZSet; z != nil {
		parts = append(parts, "zset", canonicalTexts(z.Key, z.Member, z.Score))
	}
	if e := m.Expire; e != nil {
		parts = append(parts, "expire", canonicalList(sorted(e.Keys)), e.In.String())
	}
	if m.Incr.Value != "" {
		parts = append(parts, "incr", m.Incr.Value)
	}
	if p := m.Publish; p != nil {
		parts = append(parts, "publish", canonicalTexts(p.Channel, p.Message))
	}
	if s := m.Stream; s != nil {
		parts = append(parts, "stream", s.Key.Value, strconv.FormatInt(s.MaxLen, 10))
	}
	return canonicalList(parts)
}

// canonicalRebuild is canonical for a rebuild. The order of columns counts: it is that of the document.
func canonicalRebuild(r *spec.Rebuild) string {
	parts := []string{
		"query", r.Query.Value, "server", r.Server.Value, "timeout", r.Timeout.String(), "rows", string(r.Rows),
		"as", r.As.String(), "value", r.Value.Value, "columns", canonicalTexts(r.Columns...), "decimals", string(r.Decimals),
		"expire_at", r.ExpireAt.String(), "ttl", r.TTL.String(), "jitter", percentages().format(r.Jitter),
	}
	if e := r.Missing; e != nil {
		parts = append(parts, "missing", e.Cache.Value, e.TTL.String())
	}
	return canonicalList(parts)
}

func canonicalTexts(texts ...spec.Text) string {
	values := make([]string, len(texts))
	for i, t := range texts {
		values[i] = t.Value
	}
	return canonicalList(values)
}

func sorted(texts []spec.Text) []string {
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
