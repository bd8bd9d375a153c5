package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/router"
)

// Invalidations have keys forgotten that an operator names, in the words of the admin API.
type Invalidations struct {
	Book   Book
	Config *config.Config
	// Facts are where readers keep their mappings; nil, or returning nil, with the embedded log.
	Facts func() doubt.SharedFacts
	// NoRedis says that this process deletes no keys, whatever the configuration has.
	NoRedis bool
	// Forget has keys forgotten now, given without redis.key_prefix, and returns how many once all are finished. Nil
	// where there is no Redis at hand.
	Forget func(ctx context.Context, keys []string) (int, error)
}

// maxByHand is how many requests may wait for their answer: fewer than a book takes of one cause.
const maxByHand = 100

// InvalidateKeys implements admin.Invalidations.
func (v Invalidations) InvalidateKeys(ctx context.Context, keys []string) (done admin.Forgotten, err error) {
	if err := v.elsewhere(); err != nil {
		return done, err
	}
	if v.Forget == nil {
		return done, admin.NotHere("keys are forgotten by a running freshet that has Redis: start it, or ask the one that does")
	}
	done.Remark = PrefixRemark(v.Config, keys...)
	done.Count, err = v.Forget(ctx, keys)
	return done, err
}

// PrefixRemark says what the first of these names means that begins with redis.key_prefix: another key than the one
// that Redis shows by it. "": none does.
func PrefixRemark(c *config.Config, names ...string) string {
	p := c.Redis.KeyPrefix
	i := slices.IndexFunc(names, func(name string) bool { return p != "" && strings.HasPrefix(name, p) })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%q means %q in Redis, since redis.key_prefix is put before each name: leave it out if that is not "+
		"what you want", names[i], p+names[i])
}

// Invalidate implements admin.Invalidations: it records a doubt about the keys, which is then answered.
func (v Invalidations) Invalidate(ctx context.Context, s admin.Scope) (done admin.Recorded, err error) {
	if err := v.elsewhere(); err != nil {
		return done, err
	}
	d, err := v.doubt(ctx, s)
	if err != nil {
		return done, err
	}
	if v.waiting(d.ID) >= maxByHand {
		return done, fmt.Errorf("%d such requests are not answered yet: wait until they are (`freshet doubts list`), or dismiss "+
			"some", maxByHand)
	}
	return admin.Recorded{ID: d.ID, Remark: PrefixRemark(v.Config, s.Pattern)}, v.Book().Record(ctx, d)
}

// elsewhere refuses where there is no Redis to forget keys in.
func (v Invalidations) elsewhere() error {
	if v.NoRedis || !v.Config.HasRedis() {
		return admin.NotHere("a reader has no redis in which it could forget keys: ask an invalidator of the group whose redis " +
			"is meant, or `freshet run`")
	}
	return nil
}

// mappings returns all mappings whose keys are in Redis, and of how many sources they are: those of the configuration,
// or with Kafka those that readers have kept.
func (v Invalidations) mappings(ctx context.Context) (all []*router.Mapping, sources int, err error) {
	if v.Config.EventLog.Kind != config.EventLogKafka {
		route, err := router.New(v.Config.Mappings, router.Options{})
		if err != nil {
			return nil, 0, err
		}
		return route.Mappings(), 1, nil
	}
	learned, err := learnEach(ctx, v.Facts(), learnMappings)
	for _, l := range learned {
		all = append(all, l.Mappings...)
	}
	return all, len(learned), err
}

// waiting returns how many other requests are not answered yet.
func (v Invalidations) waiting(id string) (n int) {
	for _, d := range v.Book().List() {
		if d.Cause == alarm.ByHand && d.ID != id {
			n++
		}
	}
	return n
}

// doubt returns the doubt that stands for a scope.
//
// Templates narrow the tables of a doubt. What is asked for are the keys of each table and each template that is named,
// so that where both are, the tables stand as all of their templates. That may be more keys than were meant, never
// fewer.
func (v Invalidations) doubt(ctx context.Context, s admin.Scope) (doubt.Doubt, error) {
	d := doubt.Doubt{Cause: alarm.ByHand, Pattern: s.Pattern}
	switch {
	case s.Since != "":
		return v.since(s.Since)
	case s.Where != "":
		return v.where(ctx, s)
	}
	d.Source, d.Group = v.whose()
	mappings, sources, err := v.mappings(ctx)
	if err != nil {
		return d, err
	}
	if sources > 1 && len(s.Mappings) > 0 {
		return d, unfit("the mappings of %d sources have no common numbers: name a mapping by its key", sources)
	}
	c := chooser{mappings: mappings}
	if d.Templates, err = c.templates(s.Templates, s.Mappings); err != nil {
		return d, err
	}
	tables, err := c.tables(s.Tables)
	if err != nil {
		return d, err
	}
	if len(d.Templates) == 0 {
		d.Tables = tables
	} else {
		d.Templates = append(d.Templates, c.of...)
	}
	d = d.Named()
	d.Message = "an operator asked freshet to forget " + meant(s, d.Templates)
	return d, nil
}

// whose returns whose doubt a request is: of the one source that there is, or with Kafka of a group's Redis.
func (v Invalidations) whose() (source, group string) {
	if v.Config.EventLog.Kind == config.EventLogKafka {
		return "", v.Config.EventLog.Kafka.Group
	}
	return v.Config.Source.Name, ""
}

// since returns the doubt that stands for the keys of all changes since a time.
func (v Invalidations) since(text string) (d doubt.Doubt, err error) {
	at, err := sinceWhen(text, time.Now())
	if err != nil {
		return d, err
	}
	from := at.UTC().Format(time.RFC3339)
	d = doubt.Doubt{Cause: alarm.ByHand, From: from}
	d.Source, d.Group = v.whose()
	d = d.Named()
	d.Message = "an operator asked freshet to forget the keys of all changes since " + from
	return d, nil
}

// where returns the doubt that stands for the keys of some rows of a table, once the source has taken the condition.
func (v Invalidations) where(ctx context.Context, s admin.Scope) (d doubt.Doubt, err error) {
	var facts doubt.SharedFacts
	if v.Facts != nil {
		facts = v.Facts()
	}
	mappings, err := WalkedMappings(ctx, v.Config, facts)
	if err != nil {
		return d, err
	}
	rows, err := WalkOf(mappings, s.Tables[0], s.Where)
	if err == nil {
		rows.Forget = true
		err = TryWalk(ctx, v.Config, mappings, rows)
	}
	if err != nil {
		return d, err
	}
	_, group := v.whose()
	name := rows.Schema + "." + rows.Name
	return doubt.Doubt{
		Cause: alarm.ByHand, Source: v.Config.Source.Name, Group: group, Tables: []string{name}, Where: s.Where,
		Message: "an operator asked freshet to forget the keys of those rows of " + name + " that meet a condition",
	}.Named(), nil
}

// sinceWhen reads a time, or how long before now that is.
func sinceWhen(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if ago, notAgo := time.ParseDuration(text); notAgo == nil {
		at, err = now.Add(-ago), nil
	}
	switch {
	case err != nil:
		return at, unfit("%s is no time: write how long ago, such as 10m or 2h, or a time such as %s", spec.Quote(text),
			now.UTC().Format(time.RFC3339))
	case !at.Before(now):
		return at, unfit("%s is not in the past", spec.Quote(text))
	}
	return at, nil
}

// meant says in words which keys are. It names no key: a pattern may be one.
func meant(s admin.Scope, templates []string) string {
	var parts []string
	if len(s.Tables) > 0 {
		parts = append(parts, "those of "+spec.Names(s.Tables))
	}
	if len(s.Templates)+len(s.Mappings) > 0 {
		parts = append(parts, "those of "+spec.Names(templates))
	}
	what := "all keys of all mappings"
	if len(parts) > 0 {
		what = "keys: " + strings.Join(parts, ", and ")
	}
	if s.Pattern != "" {
		what += ", as far as they match a pattern"
	}
	return what
}

// chooser finds what is named among the mappings.
type chooser struct {
	mappings []*router.Mapping
	// of are the templates of the tables that were named.
	of []string
}

// tables checks the names of tables and returns them as doubts have them.
func (c *chooser) tables(names []string) (tables []string, err error) {
	for _, text := range names {
		schema, name, ok := router.ParseTable(text)
		if !ok {
			return nil, unfit("%s is no table: write schema.table; where a mapping has many tables, name the mapping",
				spec.Quote(text))
		}
		t := table(schema, name)
		known := false
		for _, m := range c.mappings {
			if m.Matches(t) {
				known = true
				c.of = append(c.of, Templates(m)...)
			}
		}
		if !known {
			var patterns []string
			for _, m := range c.mappings {
				patterns = append(patterns, m.Spec.Table.Value)
			}
			slices.Sort(patterns)
			patterns = slices.Compact(patterns)
			return nil, unfit("no mapping is for %s: %s", spec.Quote(text),
				spec.Suggest(text, patterns, "mappings are for "+spec.Names(patterns)))
		}
		tables = append(tables, t.String())
	}
	return tables, nil
}

// templates checks templates and the numbers of mappings, counted from 1, and returns all templates that are meant.
func (c *chooser) templates(names []string, numbers []int) (chosen []string, err error) {
	var all []string
	for _, m := range c.mappings {
		all = append(all, Templates(m)...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, unfit("no mapping has the key %s: %s", spec.Quote(name),
				spec.Suggest(name, all, "mappings have "+spec.Names(all)))
		}
		chosen = append(chosen, name)
	}
	for _, n := range numbers {
		if n < 1 || n > len(c.mappings) {
			return nil, unfit("there is no mapping %d: the configuration has 1 to %d, in its order", n, len(c.mappings))
		}
		chosen = append(chosen, Templates(c.mappings[n-1])...)
	}
	return chosen, nil
}

// Templates returns the templates of all keys of a mapping.
func Templates(m *router.Mapping) (all []string) {
	for i := range m.Actions {
		all = append(all, m.Actions[i].Key.Text.Value)
	}
	return all
}

func unfit(format string, args ...any) error { return admin.Unfit(fmt.Sprintf(format, args...)) }
