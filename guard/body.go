package guard

import "github.com/redis/go-redis/v9"

// A Body is the part of a guarded script that judges a batch's items again and deletes them.
type Body struct {
	script *redis.Script
}

// NewBody puts a sweep's own Lua behind the guard, which has decided already that the leader may
// delete, and that Batch.Owner is silent. The body finds
//
//	KEYS[6], KEYS[7], ...     Batch.Keys
//	ARGV[8], ARGV[9], ...     Batch.Items, distinct, at most MaxBatch
//	ARGV[6]                   Batch.Owner, "" if no owner is judged
//	kind(key)                 the type of a key as TYPE says it, "none" if there is no such key
//	refused(command, key, ..) nil, or the error to return: this user may not run the command
//	record(deleted, reowned, name, list, note)
//	                          writes the log record of the batch: how many items go, how many turned
//	                          out to be somebody else's, the list of what goes, under a name, and a
//	                          note, or nil: the reason of the answer if the batch is asked for again
//	answer('DONE', deleted, reowned, reason)
//	                          makes the result of the script
//
// and does, in this order:
//
//  1. It judges its items again, by what they say themselves: an entry still names the dead owner,
//     a job says that it is finished. That something is missing elsewhere, from a hash or a set, is
//     no evidence: that hash or set may have been lost with everybody alive.
//  2. It checks types by kind, and by refused each command that follows. Redis does not roll a
//     script back: what failed behind the record would be recorded, and still be there.
//  3. It calls record, exactly once. Anything but nil is the script's result, to be returned at
//     once.
//  4. It deletes exactly what it recorded, and returns answer('DONE', ...).
//
// registry's evict.lua is a body to learn from.
func NewBody(body string) *Body {
	return &Body{redis.NewScript(lua("server", "settings", "witness", "guard") + body)}
}
