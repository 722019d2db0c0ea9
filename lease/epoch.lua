-- Draws the epoch of a term: a number that rises from term to term, even if a failover loses the
-- stored one.
--
-- KEYS[1]  the lease
-- KEYS[2]  the epoch drawn last, decimal; no expiry
-- KEYS[3]  what a key of another type in its place is called afterwards
-- ARGV[1]  the term's token
-- ARGV[2]  the highest epoch that the caller has met, decimal; 0 if none
--
-- Returns the epoch, a decimal string, and the content of KEYS[2] if that was damaged, else ''.
-- Returns nil, and writes nothing, if the lease does not hold the token. A second run draws a
-- higher number, which is harmless.
--
-- An epoch a year ahead of the server's clock is damage, as is anything but a number, and is
-- ignored: after the largest number no term could begin. A term adds 1 and the clock a million a
-- second, so genuine epochs never reach the limit.
--
-- Lua's numbers are doubles, exact below 2^53; microseconds since 1970 reach that in 2255. They are
-- formatted by hand because tostring() on a real server rounds to 14 digits.
local lease = redis.pcall('GET', KEYS[1])
if type(lease) == 'table' and not string.find(lease.err, 'WRONGTYPE', 1, true) then
  return lease
end
if lease ~= ARGV[1] then
  return false
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- epoch(text) returns a valid epoch, or nil.
local function epoch(text)
  local n = string.match(text, '^%d+$') and tonumber(text)
  return n and n <= now + 366 * 86400 * 1000000 and n or nil
end

local stored = redis.pcall('GET', KEYS[2]) or '0'
if type(stored) == 'table' then
  if not string.find(stored.err, 'WRONGTYPE', 1, true) then
    return stored
  end
  if redis.call('EXISTS', KEYS[3]) == 1 then
    return redis.error_reply('ERR epoch is a key of another type, and so is ' .. KEYS[3])
  end
  redis.call('RENAME', KEYS[2], KEYS[3])
  stored = 'a key of another type, now ' .. KEYS[3]
end
local previous = epoch(stored)
local drawn = math.max((previous or 0) + 1, now, (epoch(ARGV[2]) or 0) + 1)
if drawn >= 9007199254740992 then
  return redis.error_reply("ERR epoch out of range: see the server's clock")
end

drawn = string.format('%.0f', drawn)
redis.call('SET', KEYS[2], drawn)
return { drawn, previous and '' or string.sub(stored, 1, 200) }
