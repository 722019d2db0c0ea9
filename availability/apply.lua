-- apply.lua: applies states to the mirror, each only if its version is newer than the stored one.
-- KEYS[1..4] see keys.lua
-- ARGV[1] mode
--   newer    writes newer states and later signs of life
--   heal     also writes states that differ at the same version
--   compare  writes nothing
-- ARGV[2..] six per mitra, at most 500 mitras: id, version, online 0|1, active 0|1, sessions, and
--   a time as iso.lua formats it, or '': for an online mitra, the last sign of life; for one that
--   was set offline for silence, the time of that judgement
-- One that is online and not active is in no set of the online, but keeps its heartbeat: as soon as
-- it is active again, it was heard then.
-- Result: { id, version, kind, ... } for each mitra that differed. Kind is
--   behind   Redis has an older version
--   differs  same version, different state; in mode newer a heartbeat alone does not count
--   ahead    Redis has a newer version, which the result contains; never written
--   heard    equal, but the source has a later sign of life, which Redis could not accept when it
--            came
--   alive    the source judged a mitra silent, but Redis received a later heartbeat; never written
-- In addition to one of these, for each key that held no value of ours and was rewritten:
--   bad_capacity, bad_heartbeat
-- Both keys belong to the mirror because the source has a state of this mitra.
local mode, ids, out = ARGV[1], {}, {}
for i = 2, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local versions = redis.call('HMGET', version, unpack(ids))

-- number(v, new) returns the stored version v, or 0 if no writer of ours can have stored it. The
-- same goes for versions further above new than a source can lose: nobody could overwrite them,
-- and a source that outbid them would run out of numbers.
local function number(v, new)
  local n = v and #v < 17 and string.match(v, '^%d+$') and tonumber(v) or 0
  return n < new + 1e12 and n or 0
end

local now = nowms()
local latest = iso(now + ahead)

local function differs(id, keeps, is_online, is_active, sessions, at)
  local was, bad = heard(id, latest)
  return (redis.call('SISMEMBER', online, id) == 1) ~= is_online
    or (redis.call('SISMEMBER', deactivated, id) == 1) == is_active
    or start(capacity(id), '9') ~= sessions
    or bad
    or mode ~= 'newer' and (keeps and was == '' and at ~= '' or not keeps and was ~= '')
end

local function bad_key(kind, id) out[#out + 1], out[#out + 2], out[#out + 3] = id, '0', kind end

-- beat(id, keeps, at) keeps the later of two heartbeats if the mitra is online.
local function beat(id, keeps, at)
  local was, bad = heard(id, latest)
  if bad then
    redis.call('UNLINK', heartbeat(id))
    bad_key('bad_heartbeat', id)
  end
  if keeps then
    if bad then excuse(id, now) end
    if was < at then redis.call('SET', heartbeat(id), at) end
  elseif was ~= '' then
    redis.call('UNLINK', heartbeat(id))
  end
end

local function count(id, sessions)
  local was = start(capacity(id), '9')
  if mistyped(was) or was ~= '' and (#was > 9 or not string.find(was, '^%d+$')) then
    redis.call('UNLINK', capacity(id))
    bad_key('bad_capacity', id)
  end
  redis.call('SET', capacity(id), sessions)
end

-- is_alive(id, judged): the mitra is online here, and its heartbeat is no earlier than the
-- judgement.
local function is_alive(id, judged)
  return judged ~= '' and (heard(id, latest)) >= judged and redis.call('SISMEMBER', online, id) == 1
end

for n, id in ipairs(ids) do
  local i = 2 + (n - 1) * 6
  local new = tonumber(ARGV[i + 1])
  local old = number(versions[n], new)
  local keeps, is_active, sessions, at = ARGV[i + 2] == '1', ARGV[i + 3] == '1', ARGV[i + 4], ARGV[i + 5]
  local is_online = keeps and is_active
  if at > latest then at = '' end
  local kind
  if new > old then
    kind = not keeps and is_alive(id, at) and 'alive' or 'behind'
  elseif new < old then
    kind = 'ahead'
  elseif new == old and differs(id, keeps, is_online, is_active, sessions, at) then
    kind = 'differs'
  elseif new == old and keeps and (heard(id, latest)) < at then
    kind = 'heard'
  end
  local write = kind == 'behind' or kind == 'heard' or kind == 'differs' and mode == 'heal'
  if write and mode ~= 'compare' then
    redis.call(is_online and 'SADD' or 'SREM', online, id)
    beat(id, keeps, at)
    redis.call(is_active and 'SREM' or 'SADD', deactivated, id)
    count(id, sessions)
    if new > old then redis.call('HSET', version, id, ARGV[i + 1]) end
  end
  if kind then
    out[#out + 1], out[#out + 2], out[#out + 3] = id, kind == 'ahead' and versions[n] or ARGV[i + 1], kind
  end
end
return out
