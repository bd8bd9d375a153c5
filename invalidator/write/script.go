package write

import (
	"crypto/sha1" // Redis names scripts by it
	_ "embed"
	"encoding/hex"
)

// Script is a Lua script that Redis runs by the SHA-1 of its source.
type Script struct {
	Name, Source, SHA string
}

// The scripts. guard.lua stands before each of those that compare versions.
var (
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

	rebuildScript = newScript("rebuild", guardSource+rebuildSource)
	stageScript   = newScript("stage", stageSource)
	fieldScript   = newScript("field", guardSource+fieldSource)
	memberScript  = newScript("member", guardSource+memberSource)
	expireScript  = newScript("expire", expireSource)
	incrScript    = newScript("incr", incrSource)
	acquireScript = newScript("acquire", acquireSource)
	renewScript   = newScript("renew", renewSource)
	releaseScript = newScript("release", releaseSource)
)

func newScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}

// Scripts returns all scripts, to be loaded when a connection is made or when one is missing.
func Scripts() []*Script {
	return []*Script{
		rebuildScript, stageScript, fieldScript, memberScript, expireScript, incrScript, acquireScript, renewScript, releaseScript,
	}
}
