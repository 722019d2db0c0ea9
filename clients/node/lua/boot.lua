-- boot.lua: draws the boot token and writes the first heartbeat with it, in one step (after
-- settings.lua).
--
-- The token is above that of any earlier life of this id, even if the server's clock went back. The
-- heartbeat has the last life's token only until it expires, so the witness keeps the highest time
-- of all tokens. If called again after a lost reply, it returns the same token.
-- KEYS[1] heartbeat  KEYS[2] roster  KEYS[3] witness
-- ARGV[1] instance  ARGV[2] random, 10 digits  ARGV[3] heartbeat TTL ms  ARGV[4] GRACE ms
-- Result: the token
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local at = string.format('%.0f', math.floor(now / 1000))
local held = redis.pcall('GET', KEYS[1])
local us, random
if type(held) == 'string' then
  local digits = string.match(held, '/(%d+)$')
  if digits and #digits == 26 then us, random = boot_time(string.sub(digits, 1, 16), at), string.sub(digits, 17) end
end
if not (us and random == ARGV[2]) then
  local highest = redis.pcall('HGET', KEYS[3], 'boot')
  highest = type(highest) == 'string' and boot_time(highest, at) or '0'
  us = string.format('%016.0f', math.max(now, tonumber(us or '0') + 1, tonumber(highest) + 1))
end
local token = us .. ARGV[2]
redis.call('SET', KEYS[1], at .. '/' .. token, 'PX', ARGV[3])
tell_grace(KEYS[3], ARGV[4], at, us)
redis.pcall('SADD', KEYS[2], ARGV[1])
-- Wakes the leader; the channel is the heartbeat key of an empty id.
redis.pcall('PUBLISH', string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1]), ARGV[1])
redis.pcall('HDEL', KEYS[3], 'bye:' .. ARGV[1])
return token
