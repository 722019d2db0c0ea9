package guard

import "github.com/redis/go-redis/v9"

// A Body is the part of a guarded script that judges a batch's items again and deletes them.
type Body struct {
	script *redis.Script
}

// NewBody appends Lua to the guard; package janitor documents what it must do.
func NewBody(body string) *Body {
	return &Body{redis.NewScript(listenLua + lua("former", "guard") + body)}
}

// EvictEntries is the body of a batch that evicts entries of the registry: Items are ids, Owner is
// the dead instance, and Keys are those of EntryKeys; without the second one the index is left
// alone. So is an unusable index; Answer.Reason then has the error.
var EvictEntries = NewBody(lua("evict"))

// EntryKeys returns the Keys of a batch whose Body is EvictEntries.
func EntryKeys(l Layout, owner string) []string { return []string{l.Registry(), l.Devices(owner)} }
