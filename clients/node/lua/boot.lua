-- boot.lua: draws the boot token and writes the first heartbeat with it, in one step (after
-- settings.lua and record.lua).
--
-- The token is above that of any earlier life of this id, even if the server's clock went back. The
-- heartbeat has the last life's token only until it expires, so the witness keeps the highest time
-- of all tokens. If called again after a lost reply, it returns the same token.
-- ARGV[9] random, 10 digits  ARGV[10] GRACE ms
-- Result: { the token, last of the own record (0: none) }
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local ms = math.floor(now / 1000)
local at = text(ms)
local held = redis.pcall('GET', KEYS[1])
local us, random
if type(held) == 'string' then
  local digits = string.match(held, '/(%d+)$')
  if digits and #digits == 26 then us, random = boot_time(string.sub(digits, 1, 16), at), string.sub(digits, 17) end
end
if not (us and random == ARGV[9]) then
  local highest = redis.pcall('HGET', KEYS[4], 'boot')
  highest = type(highest) == 'string' and boot_time(highest, at) or '0'
  us = string.format('%016.0f', math.max(now, tonumber(us or '0') + 1, tonumber(highest) + 1))
end
local token = us .. ARGV[9]
redis.call('SET', KEYS[1], at .. '/' .. token, 'PX', ARGV[3])
prove(ms, ARGV[6])
tell_grace(KEYS[4], ARGV[10], at, us)
redis.pcall('SADD', KEYS[2], ARGV[1])
publish('', ARGV[1]) -- wakes the leader
return { token, last or 0 }
