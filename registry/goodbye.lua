-- goodbye.lua: a graceful end (after owner.lua). It deletes the heartbeat and records the goodbye,
-- so that leftovers are swept at once. If nothing is left, it deletes the roster entry too.
-- ARGV[9] number of claims that could not be handed back
if token == ARGV[2] then redis.call('DEL', KEYS[1]) end
prove(server_ms(), 'b')
if redis.call('EXISTS', KEYS[3]) == 0 and ARGV[9] == '0' then redis.pcall('SREM', KEYS[2], ARGV[1]) end
publish('', ARGV[1]) -- wakes the leader
return reply()
