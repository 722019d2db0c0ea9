-- same.lua: is this client where the control client has just written the heartbeat, and may it
-- write there?
-- KEYS[1] heartbeat  ARGV[1] boot token
-- Result: 'OK'; 'SUPERSEDED' if a newer boot stands there; 'OTHER' if an older one, something else
-- or nothing does; READONLY, as an error, if it is a replica.
local held = redis.pcall('GET', KEYS[1])
local token = type(held) == 'string' and string.match(held, '/(%d+)$')
-- A token of a year ahead of the clock is of no boot: see boot_time in settings.lua.
if token and #token == 26 and token > ARGV[1] and
  tonumber(string.sub(token, 1, 10)) <= tonumber(redis.call('TIME')[1]) + 366 * 86400 then return 'SUPERSEDED' end
-- deletes nothing, and is refused by a replica that lags
if not held then redis.call('DEL', KEYS[1]) end
if token ~= ARGV[1] then return 'OTHER' end
redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1])) -- a write that changes nothing
return 'OK'
