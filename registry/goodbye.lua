-- goodbye.lua: a graceful end (behind owner.lua): the heartbeat goes, so that what is left is swept
-- at once; the roster entry too if nothing is left, else a mark that this was no silent death.
-- ARGV[5] how many claims could not be handed back
if token == ARGV[2] then redis.call('DEL', KEYS[1]) end
if redis.call('EXISTS', KEYS[3]) == 0 and ARGV[5] == '0' then
  redis.pcall('SREM', KEYS[2], ARGV[1])
else
  local t = redis.call('TIME')
  redis.pcall('HSET', KEYS[4], 'bye:' .. ARGV[1], t[1])
end
return reply()
