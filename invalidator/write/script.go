package write

import (
	"crypto/sha1" // Redis names scripts by it
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
)

// Script is a Lua script that Redis runs by the SHA-1 of its source.
type Script struct {
	Name, Source, SHA string
	// several does the same to several keys; nil: there is none.
	several *Script
}

// The sources of the scripts.
var (
	//go:embed head.lua
	headSource string
	//go:embed guard.lua
	guardSource string
	//go:embed several.lua
	severalSource string
	//go:embed rebuild.lua
	rebuildSource string
	//go:embed stage.lua
	stageSource string
	//go:embed field.lua
	fieldSource string
	//go:embed member.lua
	memberSource string
	//go:embed expire.lua
	expireSource string
	//go:embed incr.lua
	incrSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string
)

// scripts are all of them, by what they do.
type scripts struct {
	rebuild, stage, field, member, expire, incr, acquire, renew, release *Script
}

// theScripts are never written to.
var theScripts = newScripts()

// newScripts makes the scripts.
func newScripts() *scripts {
	return &scripts{
		rebuild: newGuarded("rebuild", rebuildSource, 2),
		stage:   newScript("stage", stageSource),
		field:   newGuarded("field", fieldSource, 3),
		member:  newGuarded("member", memberSource, 3),
		expire:  newScript("expire", expireSource),
		incr:    newScript("incr", incrSource),
		acquire: newScript("acquire", acquireSource),
		renew:   newScript("renew", renewSource),
		release: newScript("release", releaseSource),
	}
}

// newGuarded returns a script that compares versions, and its other one for several keys. In KEYS each key stands with
// so many names in all. The source says what both have in common, what the second one does with several keys at once,
// and what is done to one key: first lines, the guard, and the rest.
func newGuarded(name, source string, names int) *Script {
	common, source, _ := strings.Cut(source, "--- several keys\n")
	several, source, _ := strings.Cut(source, "--- one key\n")
	first, rest, _ := strings.Cut(source, "--- guard.lua stands here\n")
	one := first + guardSource + rest
	s := newScript(name, headSource+common+"local at, words = 1, #ARGV - 7\n"+one)
	frame := strings.NewReplacer(
		"EACH", strconv.Itoa(names), "--- the script's own lines stand here\n", several,
		"--- what is done to one key stands here\n", one,
	)
	s.several = newScript(name, headSource+common+frame.Replace(severalSource))
	return s
}

func newScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}

// Scripts returns all scripts, to be loaded before they are needed or when one is missing.
func Scripts() []*Script {
	s := theScripts
	return []*Script{
		s.rebuild, s.rebuild.several, s.stage, s.field, s.field.several, s.member, s.member.several, s.expire, s.incr,
		s.acquire, s.renew, s.release,
	}
}
