-- release.lua: an owner removes its own entries, compared (after owner.lua).
-- ARGV[5..] ids, at most 1000. Extra: number of entries removed.
local found = redis.call('HMGET', KEYS[5], unpack(ARGV, 5))
local own, n = {}, 0
for i = 1, #found do
  if found[i] == ARGV[1] then
    n = n + 1
    own[n] = ARGV[i + 4]
  end
end
if n > 0 then
  redis.call('HDEL', KEYS[5], unpack(own))
  exists = redis.call('EXISTS', KEYS[5])
  -- see found_gone
  if exists == 0 and witness_says('last') then redis.pcall('HSET', KEYS[4], 'emptied', server_ms()) end
end
redis.pcall('SREM', KEYS[3], unpack(ARGV, 5)) -- an earlier life may have had an index
return reply(n)
