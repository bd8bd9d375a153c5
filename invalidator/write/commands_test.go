package write

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func TestCommandsAreAllThatAnActionNeeds(t *testing.T) {
	server := testbed.Redis(t)
	for action, item := range map[event.Action]Item{
		event.ActionDelete: {},
		event.ActionRebuild: {
			Effect: &event.Effect{As: event.FormHash, TTL: time.Hour},
			Fields: large("k", inlineFields+1, 1, at(0)).Fields,
		},
		event.ActionHash:   {Effect: &event.Effect{}, Fields: fields("f", "1")},
		event.ActionSet:    {Effect: &event.Effect{}, Fields: fields("m")},
		event.ActionZSet:   {Effect: &event.Effect{}, Fields: fields("m", "1")},
		event.ActionExpire: {Effect: &event.Effect{In: time.Second}},
		event.ActionIncr:   {Effect: &event.Effect{}},
	} {
		user := "only-" + action.String()
		words := []any{"acl", "setuser", user, "reset", "on", ">secret", "~*", "+hello", "+client"}
		for _, c := range Commands(action, true) {
			words = append(words, "+"+c)
		}
		server.Do(t, words...)
		r := newRig(t, server, Options{Entries: 1})
		r.client = server.NewClient(&redis.Options{Username: user, Password: "secret"})
		item.Key, item.Action, item.Source, item.D, item.Now, item.Until = "k", action, "s", testD, time.Now(), inTime
		for _, kind := range []string{"none", "string", "hash", "set"} {
			server.Do(t, "flushall")
			switch kind {
			case "string":
				server.Do(t, "set", "k", "1")
			case "hash":
				server.Do(t, "hset", "k", "f", "0")
			case "set":
				server.Do(t, "sadd", "k", "m")
			}
			for pos, intent := range []event.Intent{
				event.IntentPut, event.IntentPut, event.IntentRemove, event.IntentForget,
				event.IntentPut,
			} {
				for range 2 {
					item.Intent, item.Version = intent, at(uint64(pos))
					if _, err := r.try(&item); err != nil {
						t.Errorf("%s %s of a %s with %v: %v", action, intent, kind, Commands(action, true), err)
					}
				}
			}
		}
	}
	// A script may go on where it is refused something: Redis has noted it.
	if refused := server.Do(t, "acl", "log"); len(refused.([]any)) > 0 {
		t.Errorf("refused: %v", refused)
	}
	for _, c := range []string{"set", "pexpire", "get", "del"} {
		if !slices.Contains(Commands(event.ActionRebuild, true), c) {
			t.Errorf("a lock needs %s", c)
		}
	}
}
