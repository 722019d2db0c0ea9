-- heartbeat.lua: takes a heartbeat.
-- KEYS[1] mitras:online  KEYS[2] mitras:deactivated  KEYS[3] mitras:condemned
-- KEYS[4] mitras:seeded
-- KEYS[5] the mitra's heartbeat. It is called most of all, so nothing stands before it but iso.lua.
-- ARGV[1] id
-- Result: deactivated; not_online, also if an auto-offline is under way, or the app would believe
-- that it is online while it goes offline; kept; unseeded: kept, but the mirror is not whole, so it
-- does not know whether the mitra is online.
local id = ARGV[1]
if redis.call('SISMEMBER', KEYS[2], id) == 1 then return 'deactivated' end
if redis.call('HEXISTS', KEYS[3], id) == 1 then return 'not_online' end
local whole = redis.call('EXISTS', KEYS[4]) == 1
if whole and redis.call('SISMEMBER', KEYS[1], id) == 0 then return 'not_online' end
redis.call('SET', KEYS[5], iso(nowms()))
return whole and 'kept' or 'unseeded'
