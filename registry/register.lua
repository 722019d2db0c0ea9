-- register.lua: registers devices of one owner, newest claim wins (behind owner.lua).
-- ARGV[5..] IMEIs, at most 1000
assert_life()
local pairs_, imeis = {}, {}
for i = 5, #ARGV do
  imeis[#imeis + 1] = ARGV[i]
  pairs_[#pairs_ + 1] = ARGV[i]
  pairs_[#pairs_ + 1] = ARGV[1]
end
local found = redis.call('HMGET', KEYS[5], unpack(imeis))
redis.call('HSET', KEYS[5], unpack(pairs_))
index('SADD', imeis)
tell(found, imeis)
return signs()
