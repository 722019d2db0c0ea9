-- drop.lua: takes entries out of a bin that were restored, or whose time is over. Their keys are
-- unlinked first, so that a crash in between leaves no key without an entry.
-- KEYS[1] the bin: id -> JSON  KEYS[2] the ids, by the time they are dropped
-- ARGV: ids
redis.call('HDEL', KEYS[1], unpack(ARGV))
redis.call('ZREM', KEYS[2], unpack(ARGV))
return #ARGV
