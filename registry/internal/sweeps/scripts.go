package sweeps

import (
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
)

var (
	//go:embed evict.lua
	evictLua string
	//go:embed serverid.lua
	serverIDLua string

	serverIDScript = redis.NewScript(serverIDLua)
)

// EvictEntries is the body of a batch that evicts; see registry.EvictEntries.
var EvictEntries = guard.NewBody(evictLua)

// EntryKeys returns the keys of such a batch.
func EntryKeys(l guard.Layout, owner string) []string {
	return []string{l.Registry(), l.Devices(owner)}
}
