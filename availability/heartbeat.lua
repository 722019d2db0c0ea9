-- heartbeat.lua: takes a heartbeat.
-- KEYS[1..5] see keys.lua  KEYS[6] the mitra's heartbeat
-- ARGV[1] id
-- Result: deactivated; not_online, also if an auto-offline is under way, or the app would believe
-- that it is online while it goes offline; kept; unseeded: kept, but the mirror is not whole, so it
-- does not know whether the mitra is online.
local id = ARGV[1]
if redis.call('SISMEMBER', deactivated, id) == 1 then return 'deactivated' end
if redis.call('HEXISTS', condemned, id) == 1 then return 'not_online' end
local whole = redis.call('EXISTS', seeded) == 1
if whole and redis.call('SISMEMBER', online, id) == 0 then return 'not_online' end
redis.call('SET', KEYS[6], iso(nowms()))
return whole and 'kept' or 'unseeded'
