-- pardon.lua: lifts marks of auto-offline, each only if it is unchanged.
-- KEYS[1..5] see keys.lua
-- ARGV id, version, ...
-- Result: how many were lifted
local n = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', condemned, ARGV[i]) == ARGV[i + 1] then
    n = n + redis.call('HDEL', condemned, ARGV[i])
  end
end
return n
