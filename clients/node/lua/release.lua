-- release.lua: an owner removes its own entries, compared (after owner.lua).
-- ARGV[9..] ids, at most 1000. Extra: number of entries removed.
local before = redis.call('HMGET', KEYS[5], unpack(ARGV, 9))
local own, n = {}, 0
for i = 1, #before do
  if before[i] == ARGV[1] then
    n = n + 1
    own[n] = ARGV[i + 8]
  end
end
if n > 0 then
  redis.call('HDEL', KEYS[5], unpack(own))
  -- see found_gone
  if redis.call('EXISTS', KEYS[5]) == 0 and witness_says('last') then
    redis.pcall('HSET', KEYS[4], 'emptied', text(server_ms()))
  end
end
redis.pcall('SREM', KEYS[3], unpack(ARGV, 9)) -- an earlier life may have had an index
return reply(n)
