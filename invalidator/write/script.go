package write

import (
	"crypto/sha1" // Redis names scripts by it
	_ "embed"
	"encoding/hex"
	"strings"
)

// Script is a Lua script that Redis runs by the SHA-1 of its source.
type Script struct {
	Name, Source, SHA string
}

// The sources of the scripts.
var (
	//go:embed head.lua
	headSource string
	//go:embed guard.lua
	guardSource string
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
		rebuild: newScript("rebuild", guarded(rebuildSource)),
		stage:   newScript("stage", stageSource),
		field:   newScript("field", guarded(fieldSource)),
		member:  newScript("member", guarded(memberSource)),
		expire:  newScript("expire", expireSource),
		incr:    newScript("incr", incrSource),
		acquire: newScript("acquire", acquireSource),
		renew:   newScript("renew", renewSource),
		release: newScript("release", releaseSource),
	}
}

// guarded returns a script that compares versions: the guard stands where its source says, after its first lines.
func guarded(source string) string {
	first, rest, _ := strings.Cut(source, "--- guard.lua stands here\n")
	return headSource + first + guardSource + rest
}

func newScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}

// Scripts returns all scripts, to be loaded before they are needed or when one is missing.
func Scripts() []*Script {
	s := theScripts
	return []*Script{s.rebuild, s.stage, s.field, s.member, s.expire, s.incr, s.acquire, s.renew, s.release}
}
