-- away.lua: (after same.lua) moves one key or member aside on its own server of a Cluster, if it
-- is as the look saw it. The script detects what it has already moved, so that each is counted
-- once, even after a crash.
-- KEYS[1] the key  KEYS[2] its new name, in the same slot  KEYS[3..] keys that are read
-- ARGV[1] the last ms, by this server's clock, at which the evidence counts
-- ARGV[2] its expiry in the new place (ms)
-- ARGV[3] JSON: seen, and member { ZREM, SREM or HDEL, key, member }
-- Result: 1 moved, now or already; 0 changed since the look; -1 too late
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
