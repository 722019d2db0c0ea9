-- drop.lua: takes entries out of a bin whose time is over, or that were restored. The keys that
-- they named are unlinked before: so nothing is left without an entry, whatever dies in between.
-- KEYS[1] the bin: id -> JSON  KEYS[2] the ids, by when they are dropped
-- ARGV: ids
redis.call('HDEL', KEYS[1], unpack(ARGV))
redis.call('ZREM', KEYS[2], unpack(ARGV))
return #ARGV
