-- heartbeat.lua: takes a heartbeat. It is called most of all, so nothing stands before it but
-- iso.lua, and it builds what keys it needs.
-- KEYS[1] the mitra's heartbeat
-- ARGV[1] id  ARGV[2] when the client's minute began, in seconds  ARGV[3] that minute as text, to
-- its last colon: where the server is in that minute too, half of the work of iso is done
-- Result: deactivated; not_online, also if an auto-offline is under way, or the app would believe
-- that it is online while it goes offline; kept; unseeded: kept, but the mirror is not whole, so it
-- does not know whether the mitra is online.
local call, id = redis.call, ARGV[1]
local prefix = string.sub(KEYS[1], 1, -17 - #id) -- what stands before mitra:heartbeat:
if call('SISMEMBER', prefix .. 'mitras:deactivated', id) == 1 then return 'deactivated' end
if call('HEXISTS', prefix .. 'mitras:condemned', id) == 1 then return 'not_online' end
local certificate = redis.pcall('GET', prefix .. 'mitras:seeded')
local whole = type(certificate) == 'string' and #certificate == 24
if whole and call('SISMEMBER', prefix .. 'mitras:online', id) == 0 then return 'not_online' end
local t = call('TIME')
local second = t[1] - ARGV[2]
call('SET', KEYS[1], second >= 0 and second < 60
  and string.format('%s%02d.%03dZ', ARGV[3], second, (t[2] - t[2] % 1000) / 1000)
  or iso(nowms()))
return whole and 'kept' or 'unseeded'
