-- heartbeat.lua: takes a heartbeat. It is called most of all, so nothing stands before it but
-- iso.lua, and it builds what keys it needs.
-- KEYS[1] the mitra's heartbeat
-- ARGV[1] id
-- Result: deactivated; not_online, also if an auto-offline is under way, or the app would believe
-- that it is online while it goes offline; kept; unseeded: kept, but the mirror is not whole, so it
-- does not know whether the mitra is online.
local call, id = redis.call, ARGV[1]
local prefix = string.sub(KEYS[1], 1, -17 - #id) -- what stands before mitra:heartbeat:
if call('SISMEMBER', prefix .. 'mitras:deactivated', id) == 1 then return 'deactivated' end
if call('HEXISTS', prefix .. 'mitras:condemned', id) == 1 then return 'not_online' end
local whole = call('EXISTS', prefix .. 'mitras:seeded') == 1
if whole and call('SISMEMBER', prefix .. 'mitras:online', id) == 0 then return 'not_online' end
call('SET', KEYS[1], iso(nowms()))
return whole and 'kept' or 'unseeded'
