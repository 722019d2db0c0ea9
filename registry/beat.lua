-- beat.lua: the heartbeat (behind owner.lua). An owner need not contend. One whose WARM differs from
-- that of the last tick puts its own in that place: the next to listen finds that the fleet disagrees.
assert_life()
local warm, was = string.format('%.0f', ARGV[3] + 2000), hears('warm')
if was and was ~= warm then redis.pcall('HSET', KEYS[4], 'warm', warm) end
return signs()
