package registry

import (
	_ "embed"

	"github.com/rollcall-redis/rollcall/guard"
)

// Layout names every key; see guard.Layout.
type Layout = guard.Layout

//go:embed evict.lua
var evictLua string

// EvictEntries is the body of a guarded batch that evicts entries: Items are IMEIs, Owner is the
// dead instance, and Keys are what EntryKeys returns for it. An index that cannot be used is left
// alone, and Answer.Reason says why.
var EvictEntries = guard.NewBody(evictLua)

// EntryKeys are the Keys of a batch whose Body is EvictEntries.
func EntryKeys(l Layout, owner string) []string { return []string{l.Registry(), l.Devices(owner)} }
