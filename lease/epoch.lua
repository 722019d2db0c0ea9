-- Draws the epoch of a term: a number that rises from term to term, also when
-- the stored one was lost in a failover.
--
-- KEYS[1]  the lease
-- KEYS[2]  the epoch drawn last, decimal; no expiry
-- ARGV[1]  the term's token
-- ARGV[2]  the highest epoch that the caller has met, decimal; 0 if none
--
-- Returns the epoch, in decimal as a string; nil if the lease does not hold the
-- token, and then nothing is written. Run twice it draws twice: the later draw
-- is higher, which is all that is asked of it.
--
-- Numbers are doubles in Lua, exact below 2^53; microseconds since 1970 get
-- there in the year 2255. They are formatted by hand because tostring() rounds
-- to 14 digits on a real server.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return false
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local previous = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local epoch = math.max(previous + 1, now, tonumber(ARGV[2]) + 1)
if epoch >= 9007199254740992 then
  return redis.error_reply('ERR epoch out of range: see what wrote ' .. KEYS[2])
end

local drawn = string.format('%.0f', epoch)
redis.call('SET', KEYS[2], drawn)
return drawn
