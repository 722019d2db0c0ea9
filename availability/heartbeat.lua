-- heartbeat.lua: takes a heartbeat. It is the most frequent call, so only iso.lua precedes it,
-- and it builds just the keys it needs.
-- KEYS[1] the mitra's heartbeat
-- ARGV[1] id  ARGV[2] start of the client's current minute, in seconds  ARGV[3] that minute as
--   text, up to its last colon; if the server is in the same minute, this saves half of iso's
--   work
-- Result: deactivated; not_online; kept; unseeded: kept, but the mirror is not whole, so nobody
--   here knows whether the mitra is online.
local call, id = redis.call, ARGV[1]
local prefix = string.sub(KEYS[1], 1, -17 - #id) -- all before mitra:heartbeat:
if call('SISMEMBER', prefix .. 'mitras:deactivated', id) == 1 then return 'deactivated' end
local certificate = redis.pcall('GETRANGE', prefix .. 'mitras:seeded', '0', '24')
local whole = type(certificate) == 'string' and #certificate == 24
if whole and call('SISMEMBER', prefix .. 'mitras:online', id) == 0 then return 'not_online' end
local t = call('TIME')
local second = t[1] - ARGV[2]
call('SET', KEYS[1], second >= 0 and second < 60
  and string.format('%s%02d.%03dZ', ARGV[3], second, (t[2] - t[2] % 1000) / 1000)
  or iso(nowms()))
return whole and 'kept' or 'unseeded'
