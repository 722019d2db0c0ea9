-- register.lua: registers ids of one owner; the newest claim wins (after owner.lua).
-- ARGV[9..] ids, at most 1000
assert_life()
local before = redis.call('HMGET', KEYS[5], unpack(ARGV, 9))
local me, fields = ARGV[1], {}
for i = 9, #ARGV do
  fields[2 * i - 17] = ARGV[i]
  fields[2 * i - 16] = me
end
found_gone()
redis.call('HSET', KEYS[5], unpack(fields))
index('SADD', ARGV, 9)
tell(before, ARGV, 9)
return reply()
