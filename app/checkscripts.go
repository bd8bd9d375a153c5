package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/write"
)

// checkActions tries the actions of the mappings, beside deletes, on a key that nobody has: scripts, and the commands
// inside them, need rights of their own. Without mappings, as in the file of an invalidator, all of them are tried. What
// is published or added to a stream is not: somebody listens.
func checkActions(ctx context.Context, c *config.Config, r *Report) {
	wanted := actionsOf(c.Mappings)
	if len(c.Mappings) == 0 {
		wanted = []event.Action{event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionZSet, event.ActionExpire, event.ActionIncr}
	}
	if len(wanted) == 0 {
		return
	}
	redis, err := newRedis(c)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	defer redis.Close()
	build, err := write.New(write.Options{Names: write.Names{Prefix: c.Redis.KeyPrefix}})
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	var may, mayNot []string
	var first error
	for _, a := range wanted {
		if err := tryAction(ctx, redis, build, a); err != nil {
			mayNot = append(mayNot, a.String())
			if first == nil {
				first = err
			}
			continue
		}
		may = append(may, a.String())
	}
	if len(may) > 0 {
		r.add(OK, "redis takes "+strings.Join(may, ", "), "")
	}
	if len(mayNot) == 0 {
		return
	}
	grade := Fail
	if len(c.Mappings) == 0 {
		grade = Warn // perhaps no reader asks for it
	}
	r.add(grade, fmt.Sprintf("redis %s refuses %s: %v", redis, strings.Join(mayNot, ", "), first),
		fmt.Sprintf("ACL SETUSER %s +@read +@write +evalsha +script|load +time ~%s*", orDefaultUser(c), c.Redis.KeyPrefix))
}

// actionsOf returns the actions of the mappings that are more than deletes, each once.
func actionsOf(mappings []config.Mapping) []event.Action {
	var has [event.ActionIncr + 1]bool
	for i := range mappings {
		m := &mappings[i]
		has[event.ActionRebuild] = has[event.ActionRebuild] || m.Rebuild != nil
		has[event.ActionHash] = has[event.ActionHash] || m.Hash != nil && m.Hash.Value.Value != ""
		has[event.ActionSet] = has[event.ActionSet] || m.Set != nil
		has[event.ActionZSet] = has[event.ActionZSet] || m.ZSet != nil
		has[event.ActionExpire] = has[event.ActionExpire] || m.Expire != nil
		has[event.ActionIncr] = has[event.ActionIncr] || m.Incr.Value != ""
	}
	var all []event.Action
	for a, is := range has {
		if is {
			all = append(all, event.Action(a))
		}
	}
	return all
}

// tryAction does to a key that nobody has what the action does, and deletes it again.
func tryAction(ctx context.Context, redis *invalidator.Single, build *write.Builder, a event.Action) error {
	build.Reset()
	it := write.Item{
		Key: "freshet:check:" + rand.Text(), Action: a, Intent: event.IntentPut, Source: "check",
		Effect: &event.Effect{TTL: time.Minute, In: time.Minute, As: event.FormString}, Now: time.Now(),
	}
	switch a {
	case event.ActionRebuild:
		it.Fields = event.AppendField(nil, "1")
	case event.ActionHash, event.ActionZSet:
		it.Fields = event.AppendField(event.AppendField(nil, "1"), "1")
	case event.ActionSet:
		it.Fields = event.AppendField(nil, "1")
	}
	calls := build.Append(nil, &it)
	redis.Do(ctx, calls)
	_, err := build.Outcome(&it, calls)
	last := []*write.Call{build.Fallback(&it)}
	redis.Do(ctx, last)
	if err == nil {
		err = last[0].Err
	}
	return err
}
