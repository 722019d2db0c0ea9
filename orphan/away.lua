-- away.lua: (behind same.lua) moves one key, or one member, out of the way on its own server of a
-- Cluster, if it is as the look saw it. What is away can be found again: so it is counted once,
-- whatever dies in between.
-- KEYS[1] the key  KEYS[2] where it goes, in the same slot  KEYS[3..] keys that are read
-- ARGV[1] the last ms, by this server's clock, at which the evidence counts  ARGV[2] for how long
-- it stays away at most (ms)  ARGV[3] JSON: seen, and member { ZREM, SREM or HDEL, key, member }
-- Result: 1 it is away, now or already; 0 it is not as it was; -1 too late
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if now > tonumber(ARGV[1]) then return -1 end
local c = cjson.decode(ARGV[3])
if not all_same(c.seen) then return 0 end
if c.member then
  local value = '1'
  if c.member[1] == 'ZREM' then value = redis.call('ZSCORE', KEYS[1], c.member[3]) end
  if c.member[1] == 'HDEL' then value = redis.call('HGET', KEYS[1], c.member[3]) end
  redis.call('SET', KEYS[2], value)
  redis.call(unpack(c.member))
else
  redis.call('RENAME', KEYS[1], KEYS[2])
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
