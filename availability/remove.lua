-- remove.lua: removes mitras that the source does not have. It keeps mitras that were written
-- meanwhile, and keys of another type: nothing proves that they are ours.
-- KEYS[1..4] see keys.lua
-- ARGV id, the version that was read or '' if there was none, ...
-- Result: { mitra:capacity or mitra:heartbeat, key, type, ... } for each key of another type
local kept = {}
local function remove(kind, key)
  local is = redis.call('TYPE', key)
  is = type(is) == 'table' and is.ok or is
  if is == 'string' then
    redis.call('DEL', key)
  elseif is ~= 'none' then
    kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = kind, key, is
  end
end
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  if (redis.call('HGET', version, id) or '') == ARGV[i + 1] then
    redis.call('SREM', online, id)
    redis.call('SREM', deactivated, id)
    redis.call('HDEL', version, id)
    remove('mitra:capacity', capacity(id))
    remove('mitra:heartbeat', heartbeat(id))
  end
end
return kept
