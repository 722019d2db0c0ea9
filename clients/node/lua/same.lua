-- same.lua: does this client see the heartbeat that the control client has just written, and may it
-- write there?
-- KEYS[1] heartbeat  ARGV[1] boot token
-- Result: 'OK'; 'SUPERSEDED' if the token is of a newer boot; 'OTHER' for anything else or nothing;
-- READONLY, as an error, on a replica.
local held = redis.pcall('GET', KEYS[1])
local token = type(held) == 'string' and string.match(held, '/(%d+)$')
-- A token a year ahead of the clock belongs to no boot; see boot_time in settings.lua.
if token and #token == 26 and token > ARGV[1] and
  tonumber(string.sub(token, 1, 10)) <= tonumber(redis.call('TIME')[1]) + 366 * 86400 then return 'SUPERSEDED' end
-- deletes nothing; a lagging replica refuses it
if not held then redis.call('DEL', KEYS[1]) end
if token ~= ARGV[1] then return 'OTHER' end
redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1])) -- a write that changes nothing
return 'OK'
