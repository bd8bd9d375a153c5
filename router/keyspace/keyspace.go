package keyspace

import (
	"regexp"
	"slices"
	"strings"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Keyspace is every key that the templates of some mappings can have made.
type Keyspace struct {
	prefix string
	// heads are in the order of their texts.
	heads   []head
	targets []*Target
	blind   []Blind
}

// head is a literal text that templates begin with.
type head struct {
	text string
	// parent is the longest other head that this one begins with; -1: none.
	parent int
	tails  []tail
}

// tail is what may follow a head.
type tail struct {
	// re is nil for nothing.
	re      *regexp.Regexp
	targets []*Target
}

func (h *head) add(re *regexp.Regexp, t *Target) {
	for i := range h.tails {
		if o := &h.tails[i]; o.re == re {
			if !slices.Contains(o.targets, t) {
				o.targets = append(o.targets, t)
			}
			return
		}
	}
	h.tails = append(h.tails, tail{re, []*Target{t}})
}

// New compiles the templates of mappings over tables: those that there are, and former definitions of them as far as
// they are known, since keys of those may still be cached. A table without columns is one of which only the name is
// known, and one without a name stands for all tables of a schema. Keys begin with prefix. An error says that an
// expression of a mapping is too large.
func New(mappings []*router.Mapping, tables []*event.Table, prefix string) (*Keyspace, error) {
	b := &builder{compiled: map[string]*regexp.Regexp{}, heads: map[string]*head{}, of: map[*router.Action][]*Target{}}
	for _, m := range mappings {
		if err := b.mapping(m, tables); err != nil {
			return nil, err
		}
	}
	k := &Keyspace{prefix: prefix, targets: b.targets, blind: b.blind}
	for _, h := range b.heads {
		k.heads = append(k.heads, *h)
	}
	slices.SortFunc(k.heads, func(a, b head) int { return strings.Compare(a.text, b.text) })
	for i := range k.heads {
		p := i - 1
		for p >= 0 && !strings.HasPrefix(k.heads[i].text, k.heads[p].text) {
			p = k.heads[p].parent
		}
		k.heads[i].parent = p
	}
	return k, nil
}

// Blind returns the templates that are not matched.
func (k *Keyspace) Blind() []Blind { return k.blind }

// Targets returns the templates that are matched.
func (k *Keyspace) Targets() []*Target { return k.targets }

// Pattern returns a pattern for SCAN that finds every key that matches; "" where there are no such keys.
func (k *Keyspace) Pattern() string {
	if len(k.heads) == 0 {
		return ""
	}
	// What the first and the last of a sorted list have in common, all have.
	first, last := k.heads[0].text, k.heads[len(k.heads)-1].text
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return router.EscapeGlob(k.prefix+first[:n]) + "*"
}

// Match calls each for every target that can have made the key, as it stands in Redis. No target comes twice. An action
// comes more than once where its fields are others over other tables.
func (k *Keyspace) Match(key string, each func(*Target)) {
	key, ok := strings.CutPrefix(key, k.prefix)
	if !ok {
		return
	}
	var room [8]*Target
	seen := room[:0]
	for i := k.last(key); i >= 0; i = k.heads[i].parent {
		h := &k.heads[i]
		rest, ok := strings.CutPrefix(key, h.text)
		if !ok {
			continue
		}
		for j := range h.tails {
			t := &h.tails[j]
			if !t.match(rest) || reserved(key) {
				continue
			}
			for _, target := range t.targets {
				if !slices.Contains(seen, target) {
					seen = append(seen, target)
					each(target)
				}
			}
		}
	}
}

// last returns the last head that does not come after the key. Every head that the key begins with is this one, or a
// parent of it: what lies between such a head and the key begins with that head.
func (k *Keyspace) last(key string) int {
	lo, hi := 0, len(k.heads)
	for lo < hi {
		if mid := (lo + hi) / 2; k.heads[mid].text <= key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

func (t *tail) match(rest string) bool {
	if t.re == nil {
		return rest == ""
	}
	return t.re.MatchString(rest)
}

// reserved reports whether the key is one of freshet's own, here or under a prefix that is a hash tag.
func reserved(key string) bool {
	if tag, rest, ok := strings.Cut(key, "}"); ok && strings.HasPrefix(tag, "{") {
		key = rest
	}
	return strings.HasPrefix(key, "freshet:")
}

// Target is an action whose template can have made a key.
type Target struct {
	Mapping *router.Mapping
	Action  *router.Action
	field   *matcher
}

// matcher matches a literal text, and what may follow it.
type matcher struct {
	head string
	re   *regexp.Regexp
}

// same reports whether both targets of an action have the same fields.
func (t *Target) same(o *Target) bool { return t.field == nil || *t.field == *o.field }

// Field reports whether the text is a field of a hash, or a member of a set, that the action's template can have made.
// False for an action that has none.
func (t *Target) Field(text string) bool {
	if t == nil || t.field == nil {
		return false
	}
	rest, ok := strings.CutPrefix(text, t.field.head)
	return ok && (&tail{re: t.field.re}).match(rest)
}
