-- write.lua: writes a pass's notes, unless a newer term has begun.
-- KEYS[1] eviction log  KEYS[2] a hash
-- ARGV[1] epoch of the pass  ARGV[2] the chain that begins or goes on; '': no matter
-- ARGV[3] number of fields to set  ARGV[4..] field, value...; then the fields to delete
-- Result: 1; 0: the pass is of an older term, -1: another chain has begun; nothing was written
local newest = redis.pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', '1')
if newest.err then -- a key of another type: the next term sets it aside
  return string.find(newest.err, 'WRONGTYPE', 1, true) and 0 or newest
end
if newest[1] and string.match(newest[1][1], '^%d+') ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' and (tonumber(redis.call('HGET', KEYS[2], 'chain') or '') or 0) > tonumber(ARGV[2]) then return -1 end
local last = 3 + 2 * tonumber(ARGV[3])
if last > 3 then redis.call('HSET', KEYS[2], unpack(ARGV, 4, last)) end
if #ARGV > last then redis.call('HDEL', KEYS[2], unpack(ARGV, last + 1)) end
return 1
