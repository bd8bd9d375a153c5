package config

import (
	"iter"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// actions are the keys of a mapping that ask for something other than deletes.
func actions() []string {
	return []string{"rebuild", "hash", "set", "zset", "incr", "expire", "publish", "stream"}
}

// The keys of each action, but for those of rebuild.
func hashKeys() []string    { return []string{"key", "field", "value"} }
func setKeys() []string     { return []string{"key", "member"} }
func zsetKeys() []string    { return []string{"key", "member", "score"} }
func expireKeys() []string  { return []string{"keys", "in"} }
func publishKeys() []string { return []string{"channel", "message"} }
func streamKeys() []string  { return []string{"key", "maxlen"} }

// reserved is what the names of freshet's own keys begin with.
const reserved = "freshet:"

// isReserved returns what the template begins with if its keys are freshet's own: the word, or that of a freshet whose
// key_prefix is a hash tag. Only `freshet check` knows which key a column makes.
func isReserved(template string) (string, bool) {
	tag := ""
	if inner, rest, ok := strings.Cut(strings.TrimPrefix(template, "{{"), "}}"); ok && strings.HasPrefix(template, "{{") &&
		inner != "" && !strings.ContainsAny(inner, "{}") && !strings.HasPrefix(rest, "}") {
		tag = template[:len(template)-len(rest)]
	}
	return tag + reserved, strings.HasPrefix(template[len(tag):], reserved)
}

// streamLength is how many entries a stream keeps when the mapping does not say.
const streamLength = 10_000

// maxLen is how many entries a stream keeps.
func maxLen() kind[int64] { return orWord(integers[int64](1, 1e9), "none") }

// action reads one action. One that lacks a part is left out of the mapping, which was reported.
func (l *loader) action(m *spec.Mapping, f pair) {
	switch f.name {
	case "rebuild":
		l.rebuild(m, f)
	case "hash":
		l.hash(m, f)
	case "set":
		l.set(m, f)
	case "zset":
		l.zset(m, f)
	case "incr":
		m.Incr = l.phrase(f, "write the template of the counter's key, or remove the key")
	case "expire":
		l.expire(m, f)
	case "publish":
		l.publish(m, f)
	case "stream":
		l.stream(m, f)
	default:
		l.Add(f.at, "unknown key "+spec.Quote(f.name)+" in a mapping", oneOfKeys(f.name, mappingKeys()))
	}
}

func (l *loader) hash(m *spec.Mapping, f pair) {
	b, ok := l.body(f, `{key: "user:{id}", field: profile}`, hashKeys())
	if !ok {
		return
	}
	h := &spec.Hash{Pos: f.at, Value: b.text("value", "write a template, or remove the key to have the field removed")}
	h.Key = b.need("key", "write the template of the hash's key")
	h.Field = b.need("field", "write the template of the field's name")
	if h.Key.Value != "" && h.Field.Value != "" {
		m.Hash = h
	}
}

func (l *loader) set(m *spec.Mapping, f pair) {
	b, ok := l.body(f, `{key: "tag:{tag}", member: "{id}"}`, setKeys())
	if !ok {
		return
	}
	s := &spec.Set{Pos: f.at}
	s.Key = b.need("key", "write the template of the set's key")
	s.Member = b.need("member", "write the template of the member")
	if s.Key.Value != "" && s.Member.Value != "" {
		m.Set = s
	}
}

func (l *loader) zset(m *spec.Mapping, f pair) {
	b, ok := l.body(f, `{key: "board:{game}", member: "{id}"}`, zsetKeys())
	if !ok {
		return
	}
	z := &spec.ZSet{Pos: f.at, Score: b.text("score",
		"write a template, or remove the key: members are then removed, never set")}
	z.Key = b.need("key", "write the template of the sorted set's key")
	z.Member = b.need("member", "write the template of the member")
	if z.Key.Value != "" && z.Member.Value != "" {
		m.ZSet = z
	}
}

func (l *loader) expire(m *spec.Mapping, f pair) {
	b, ok := l.body(f, `{keys: ["setting:{name}"], in: 5s}`, expireKeys())
	if !ok {
		return
	}
	e := &spec.Expire{Pos: f.at, Keys: b.texts("keys", "key template")}
	b.lacks("keys", "write at least one template")
	b.lacks("in", "write how long the keys may still live, such as 5s")
	b.set("in", func(p pair) bool { return setting(l, p, timeToLive(), &e.In) })
	if len(e.Keys) > 0 && e.In > 0 {
		m.Expire = e
	}
}

func (l *loader) publish(m *spec.Mapping, f pair) {
	b, ok := l.body(f, `{channel: changed, message: "{id}"}`, publishKeys())
	if !ok {
		return
	}
	p := &spec.Publish{Pos: f.at}
	p.Channel = b.need("channel", "write the template of the channel's name")
	p.Message = b.need("message", `write the template of the message, such as "{id}"`)
	if p.Channel.Value != "" && p.Message.Value != "" {
		m.Publish = p
	}
}

func (l *loader) stream(m *spec.Mapping, f pair) {
	b, ok := l.body(f, `{key: changes, maxlen: 10000}`, streamKeys())
	if !ok {
		return
	}
	s := &spec.Stream{Pos: f.at, MaxLen: streamLength}
	s.Key = b.need("key", "write the template of the stream's key")
	b.set("maxlen", func(p pair) bool { return setting(l, p, maxLen(), &s.MaxLen) })
	if s.Key.Value != "" {
		m.Stream = s
	}
}

// keysFit reports actions that do not go with the mapping's keys, and leaves them out. at says where the keys of the
// mapping stand.
func (l *loader) keysFit(m *spec.Mapping, at map[string]spec.Pos) {
	const do = "write keys: with at least one template"
	if len(m.Keys) == 0 {
		_, said := at["keys"]
		for name, what := range map[string]string{
			"rebuild": "rebuild has no keys to write",
			"publish": "publish follows actions on the mapping's keys, and there are none",
			"stream":  "stream follows actions on the mapping's keys, and there are none",
		} {
			if p, ok := at[name]; ok && !said {
				l.Add(p, what, do)
			}
		}
		m.Rebuild, m.Publish, m.Stream = nil, nil, nil
	}
	for name, k := range allKeys(m) {
		if begin, ok := isReserved(k.Value); ok {
			l.at(k.Pos, name, &fault{
				spec.Quote(k.Value) + " begins with " + begin + ", where freshet stores versions and locks",
				"give the key another name",
			})
		}
	}
	for _, k := range m.Keys {
		for name, other := range otherKeys(m) {
			if other.Value == k.Value {
				l.at(other.Pos, name, &fault{spec.Quote(k.Value) +
					" is one of the mapping's keys, and freshet handles those as a whole", "remove it from keys, or here"})
			}
		}
	}
}

// allKeys are the templates of all keys that the mapping writes or deletes, by the path of their key.
func allKeys(m *spec.Mapping) iter.Seq2[string, spec.Text] {
	return func(yield func(string, spec.Text) bool) {
		for _, k := range m.Keys {
			if !yield("keys", k) {
				return
			}
		}
		otherKeys(m)(yield)
	}
}

// otherKeys are the templates of keys that stand with the actions, by the path of their key.
func otherKeys(m *spec.Mapping) iter.Seq2[string, spec.Text] {
	return func(yield func(string, spec.Text) bool) {
		if m.Hash != nil && !yield("hash.key", m.Hash.Key) || m.Set != nil && !yield("set.key", m.Set.Key) ||
			m.ZSet != nil && !yield("zset.key", m.ZSet.Key) || m.Stream != nil && !yield("stream.key", m.Stream.Key) ||
			m.Incr.Value != "" && !yield("incr", m.Incr) {
			return
		}
		if m.Expire == nil {
			return
		}
		for _, k := range m.Expire.Keys {
			if !yield("expire.keys", k) {
				return
			}
		}
	}
}
