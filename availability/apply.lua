-- apply.lua: brings states into the mirror, each only if its version is newer than what stands
-- there.
-- KEYS[1..5] see keys.lua
-- ARGV[1] mode
--   newer    writes the newer ones
--   heal     also those that differ at the same version, or have an older heartbeat
--   compare  writes nothing
-- ARGV[2..] six a mitra, at most 500 of them: id, version, online 0|1, active 0|1, sessions,
--   and the last sign of life as iso.lua has it, or ''
-- Result: { id, version, kind, ... } of those that were not equal. Kind is
--   behind   an older version stood here
--   differs  the same version, with something else; not in mode newer
--   ahead    a newer version stands here, and is the one in the result; never written, and not in
--            mode newer
--   heard    the same, and the source has a later sign of life, which Redis could not take when it
--            came; not in mode newer
-- A mark of auto-offline goes with the version under which it was set.
local mode, ids, out = ARGV[1], {}, {}
for i = 2, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local versions = redis.call('HMGET', version, unpack(ids))
local marked = redis.call('EXISTS', condemned) == 1

-- number(v, new) is a version that stands here, beside a new one. What no writer of ours stores is
-- none, and so is what is further ahead than a source can lose: nobody could overwrite it, and a
-- source that outbids it would come to the end of the numbers.
local function number(v, new)
  local n = v and #v < 17 and string.match(v, '^%d+$') and tonumber(v) or 0
  return n < new + 1e12 and n or 0
end

-- seen(id) is the heartbeat that stands, '' if it is none.
local function seen(id)
  local at = redis.call('GET', heartbeat(id))
  return at and #at == 24 and at or ''
end

local function differs(id, is_online, is_active, sessions, at)
  return (redis.call('SISMEMBER', online, id) == 1) ~= is_online
    or (redis.call('SISMEMBER', deactivated, id) == 1) == is_active
    or redis.call('GET', capacity(id)) ~= sessions
    or (is_online and seen(id) == '' and at ~= '')
    or (not is_online and redis.call('EXISTS', heartbeat(id)) == 1)
end

for n, id in ipairs(ids) do
  local i = 2 + (n - 1) * 6
  local new = tonumber(ARGV[i + 1])
  local old = number(versions[n], new)
  local is_online, is_active, sessions, at = ARGV[i + 2] == '1', ARGV[i + 3] == '1', ARGV[i + 4], ARGV[i + 5]
  local kind
  if new > old then
    kind = 'behind'
  elseif mode ~= 'newer' and new < old then
    kind = 'ahead'
  elseif mode ~= 'newer' and new == old and differs(id, is_online, is_active, sessions, at) then
    kind = 'differs'
  elseif mode ~= 'newer' and new == old and is_online and seen(id) < at then
    kind = 'heard'
  end
  if mode ~= 'compare' and kind and kind ~= 'ahead' then
    if is_online then
      redis.call('SADD', online, id)
      if seen(id) < at then redis.call('SET', heartbeat(id), at) end -- the later of the two
    else
      redis.call('SREM', online, id)
      redis.call('DEL', heartbeat(id))
    end
    redis.call(is_active and 'SREM' or 'SADD', deactivated, id)
    redis.call('SET', capacity(id), sessions)
    if new > old then
      redis.call('HSET', version, id, ARGV[i + 1])
      if marked then redis.call('HDEL', condemned, id) end
    end
  end
  if kind then
    out[#out + 1], out[#out + 2], out[#out + 3] = id, kind == 'ahead' and versions[n] or ARGV[i + 1], kind
  end
end
return out
