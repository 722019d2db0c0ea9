-- register.lua: registers ids of one owner; the newest claim wins (after owner.lua).
-- ARGV[5..] ids, at most 1000
assert_life()
local found = redis.call('HMGET', KEYS[5], unpack(ARGV, 5))
local me, fields = ARGV[1], {}
for i = 5, #ARGV do
  fields[2 * i - 9] = ARGV[i]
  fields[2 * i - 8] = me
end
found_gone()
redis.call('HSET', KEYS[5], unpack(fields))
index('SADD', ARGV, 5)
tell(found, ARGV, 5)
return reply()
