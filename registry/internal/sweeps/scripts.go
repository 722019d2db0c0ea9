package sweeps

import (
	_ "embed"

	"github.com/rollcall-redis/rollcall/guard"
)

//go:embed evict.lua
var evictLua string

// EvictEntries is the body of a batch that evicts; see registry.EvictEntries.
var EvictEntries = guard.NewBody(evictLua)

// EntryKeys returns the keys of such a batch.
func EntryKeys(l guard.Layout, owner string) []string {
	return []string{l.Registry(), l.Devices(owner)}
}
