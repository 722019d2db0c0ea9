package guard

import "github.com/redis/go-redis/v9"

// A Body is the part of a guarded script that judges a batch's items again and deletes them.
type Body struct {
	script *redis.Script
}

// NewBody appends a sweep's own Lua to the guard. When it runs, the guard has decided that the
// leader may delete and that Batch.Owner is silent. The body can use:
//
//	KEYS[6], KEYS[7], ...     Batch.Keys
//	ARGV[8], ARGV[9], ...     Batch.Items, distinct, at most MaxBatch
//	ARGV[6]                   Batch.Owner, "" if no owner is judged
//	kind(key)                 the key's type as TYPE reports it, "none" if it does not exist
//	refused(command, key, ..) nil, or the error to return if this user may not run the command
//	record(deleted, reowned, name, list, note)
//	                          writes the log record: how many items will be deleted, how many now
//	                          belong to somebody else, the deleted ones as a list called name, and
//	                          an optional note: the answer's reason, also when repeated
//	answer('DONE', deleted, reowned, reason)
//	                          builds the script's result
//
// It must, in this order:
//
//  1. Judge its items again by their own content: an entry still names the dead owner, a job is
//     marked finished. Absence from another hash or set is not evidence: that key may have been
//     lost with everybody alive.
//  2. Check types with kind, and every command that follows with refused. Redis does not roll
//     scripts back: a failure after the record would leave a record of deletes that never happened.
//  3. Call record exactly once. If it returns anything but nil, return that at once.
//  4. Delete exactly what it recorded, and return answer('DONE', ...).
//
// See evict.lua for an example.
func NewBody(body string) *Body {
	return &Body{redis.NewScript(listenLua + lua("former", "guard") + body)}
}

// EvictEntries is the body of a batch that evicts entries of the registry: Items are ids, Owner is
// the dead instance, and Keys are those of EntryKeys; without the second one the index is left
// alone. So is an unusable index; Answer.Reason then has the error.
var EvictEntries = NewBody(lua("evict"))

// EntryKeys returns the Keys of a batch whose Body is EvictEntries.
func EntryKeys(l Layout, owner string) []string { return []string{l.Registry(), l.Devices(owner)} }
