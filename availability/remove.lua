-- remove.lua: removes unknowns, of whom the source knows nothing. One that was written meanwhile
-- stays.
-- KEYS[1..5] see keys.lua
-- ARGV id, version that was read or '' for none, ...
-- Result: how many were removed
local n = 0
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  if (redis.call('HGET', version, id) or '') == ARGV[i + 1] then
    redis.call('SREM', online, id)
    redis.call('SREM', deactivated, id)
    redis.call('HDEL', version, id)
    redis.call('HDEL', condemned, id)
    redis.call('DEL', capacity(id), heartbeat(id))
    n = n + 1
  end
end
return n
