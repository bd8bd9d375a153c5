package write

import (
	"regexp"
	"slices"
	"strings"

	"github.com/freshet/freshet/event"
)

// inScripts finds the commands that a script runs, whose arguments Redis checks against the rights of the user that
// runs it (https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/).
const inScripts = `redis\.p?call\('([A-Z]+)'`

// Commands returns what a user of Redis must be allowed to run for an action, sorted, in lower case and as ACL SETUSER
// takes them: the commands that are sent and those inside scripts. A rebuild may also run a query, under a lock.
func Commands(a event.Action, query bool) []string {
	commands := []string{"unlink"} // what every action falls back on
	var run []*Script
	s := theScripts
	switch a {
	case event.ActionRebuild:
		run = []*Script{s.rebuild, s.stage}
		if query {
			run = append(run, s.acquire, s.renew, s.release)
		}
	case event.ActionHash:
		run, commands = []*Script{s.field}, append(commands, "hdel")
	case event.ActionSet, event.ActionZSet:
		run = []*Script{s.member}
	case event.ActionExpire:
		run = []*Script{s.expire}
	case event.ActionIncr:
		run = []*Script{s.incr}
	}
	if len(run) > 0 {
		commands = append(commands, "evalsha", "script|load")
	}
	for _, script := range run {
		source := script.Source
		if script.several != nil {
			source += script.several.Source
		}
		for _, call := range regexp.MustCompile(inScripts).FindAllStringSubmatch(source, -1) {
			commands = append(commands, strings.ToLower(call[1]))
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}
