-- away.lua: (after same.lua and take.lua) moves one key or member aside on its own server of a
-- Cluster, if it is as the look saw it. What was moved already is known by its new name, so that
-- each is counted once, even after a crash.
-- KEYS[1] the key  KEYS[2] its new name, in the same slot  KEYS[3..] keys that are read
-- ARGV[1] the last ms, by this server's clock, at which the evidence counts
-- ARGV[2] its expiry in the new place (ms), in case nobody settles it
-- ARGV[3] JSON: seen, and what take.lua needs
-- Result: 1 moved, now or already; 0 changed since the look; -1 too late
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local time = redis.call('TIME')
if tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) > tonumber(ARGV[1]) then return -1 end
local c = cjson.decode(ARGV[3])
if not all_same(c.seen) then return 0 end
take(c)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
