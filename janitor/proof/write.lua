-- write.lua: writes a pass's notes, unless a newer term has begun.
-- KEYS[1] eviction log  KEYS[2] a hash
-- ARGV[1] epoch of the pass  ARGV[2] the chain that begins or goes on; 0: no matter
-- ARGV[3..] a field, and '+' with its value, or '-' to delete it
-- Result: 1; 0: the pass is of an older term, -1: another chain has begun; nothing was written
local newest = redis.pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', '1')
if newest.err then -- a key of another type: the next term sets it aside
  return string.find(newest.err, 'WRONGTYPE', 1, true) and 0 or newest
end
if newest[1] and string.match(newest[1][1], '^%d+') ~= ARGV[1] then return 0 end
if ARGV[2] ~= '0' and (tonumber(redis.call('HGET', KEYS[2], 'chain') or '') or 0) > tonumber(ARGV[2]) then return -1 end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '-' then
    redis.call('HDEL', KEYS[2], ARGV[i])
  else
    redis.call('HSET', KEYS[2], ARGV[i], string.sub(ARGV[i + 1], 2))
  end
end
return 1
