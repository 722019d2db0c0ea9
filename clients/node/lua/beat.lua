-- settings.lua: what owners report to the witness. Prefix of beat.lua, boot.lua and witness.lua.

-- Two days. No setting of ours is longer.
local most = 172800000

-- count(v) returns the number in a field of the witness, or nil if the witness cannot have written
-- it. To Lua "nan", "1e300" and "-5" are numbers too, and NaN compares as never held.
local function count(v) return v and #v < 16 and string.match(v, '^%d+$') and tonumber(v) or nil end

-- brief(v) returns the beginning of a field: anybody can write any number of bytes there, and what
-- a script returns has to fit into its caller's memory.
local function brief(v) return v and string.sub(v, 1, 64) end

-- larger(a, b): the larger of two GRACE, as the witness has them: strings, or false.
local function larger(a, b)
  a, b = count(a) or 0, count(b) or 0
  if a > most then a = 0 end
  if b > most then b = 0 end
  return string.format('%.0f', math.max(a, b))
end

-- boot_time(v, now) returns v if it can be the time in a boot token: µs, 16 digits, at most a year
-- ahead of now (ms). With the largest number on record, all later boots would get the same token.
local function boot_time(v, now)
  return v and #v == 16 and string.match(v, '^%d+$') and tonumber(v) <= (now + 366 * 86400000) * 1000 and v
end

-- tell_grace(key, grace, at, boot) records an owner's GRACE with each beat, since an owner need not
-- contend. If the witness has another one, grace becomes 0, which no fleet uses: the next listener
-- notices, and no other owner's beat hides it. It writes nothing until somebody listens. It returns
-- when entries may last have been lost, and when the registry was last emptied.
--
-- boot, if given, is the time in the owner's boot token, and raises the highest one on record;
-- until somebody listens, only if it is ahead of the clock.
local function tell_grace(key, grace, at, boot)
  local w = redis.pcall('HMGET', key, 'grace', 'largest', 'lost', 'boot', 'emptied')
  if boot and not w.err and boot > (boot_time(w[4], at) or '') and (w[1] or tonumber(boot) >= (at + 1) * 1000) then
    redis.pcall('HSET', key, 'boot', boot)
  end
  if not w.err and w[1] and w[1] ~= grace then -- what cannot be read is not overwritten
    redis.pcall('HSET', key, 'grace', '0', 'disagreed', at, 'largest', larger(w[2], larger(w[1], grace)))
  end
  return brief(w[3]) or '', w[5]
end

-- tell_gap(key, at) records a hold, and returns the new 'lost', for an owner that a Cluster refused
-- while its keys moved: its silence was not evidence. Listeners of an older version, or with all
-- keys on one side, were not refused and know nothing of it.
local function tell_gap(key, at)
  if type(redis.pcall('HGET', key, 'last')) ~= 'string' then return end -- nobody listens yet
  redis.pcall('HSET', key, 'since', at, 'hold', at, 'reason', 'gap', 'lost', at)
  return at
end
-- owner.lua: the prelude of every script with which an owner writes. It checks that this process is
-- still the newest life of its instance id.
--
-- A boot token is 26 digits, which compare as strings in any locale: the server's time in µs when
-- the process first reached it (16), then random (10). A higher token in the heartbeat ends the
-- script, a lower one is replaced.
--
-- KEYS[1] heartbeat  KEYS[2] roster  KEYS[3] index  KEYS[4] witness  KEYS[5] registry
-- ARGV[1] instance   ARGV[2] boot token  ARGV[3] heartbeat TTL ms  ARGV[4] '1': maintain the index
-- ARGV[5..] the script's own
-- Result: { 'SUPERSEDED' }, or the table built by reply().
local held = redis.pcall('GET', KEYS[1])
local token = type(held) == 'string' and string.match(held, '/(%d+)$')

local function server_ms()
  local t = redis.call('TIME')
  return string.format('%.0f', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
end

-- A token a year ahead of the clock belongs to no boot; see boot_time in settings.lua.
if token and #token == 26 and token > ARGV[2] and
  tonumber(string.sub(token, 1, 16)) <= (server_ms() + 366 * 86400000) * 1000 then return { 'SUPERSEDED' } end

-- assert_life() is the first write of a script that writes entries: every entry gets its proof of
-- life in the same step (S5). When memory is full, SET is refused and with it the script. It
-- returns the server's time, ms.
local function assert_life()
  local ms = server_ms()
  redis.call('SET', KEYS[1], ms .. '/' .. ARGV[2], 'PX', ARGV[3])
  -- A roster of another type must not keep anybody from registering.
  redis.pcall('SADD', KEYS[2], ARGV[1])
  return ms
end

-- may(command, key, ...) returns whether this user may run a command. acl_check_cmd raises an error
-- for a renamed command, which nobody may run. Redis 6 and miniredis lack acl_check_cmd.
local function may(...)
  if not redis.acl_check_cmd then return true end
  local known, allowed = pcall(redis.acl_check_cmd, ...)
  return known and allowed
end

-- witness_says(field): the beginning of what the witness says, false if it does not: it is no hash,
-- or this user may not read it.
local function witness_says(field)
  local v = redis.pcall('HGET', KEYS[4], field)
  return type(v) == 'string' and string.sub(v, 1, 64)
end

-- found_gone() must run before a script writes its first entry. If the registry is missing, it
-- warns every owner through the witness: the entry that follows would hide the loss. If a release
-- or sweep recorded that it took the last entry out ('emptied'), nothing was lost. That record
-- counts once, and not if entries may have been lost since; a beat that finds a registry deletes
-- it. Without a witness the first tick will warn.
local exists -- 1: there is a registry now; nil: not checked
local function found_gone()
  exists = 1
  if redis.call('EXISTS', KEYS[5]) == 1 or not witness_says('last') then return end
  local emptied, lost = tonumber(witness_says('emptied') or ''), tonumber(witness_says('lost') or '')
  if emptied then redis.pcall('HDEL', KEYS[4], 'emptied') end
  if not emptied or emptied < (lost or 0) then redis.pcall('HSET', KEYS[4], 'lost', server_ms()) end
end

-- index(command, list, first) updates the reverse index with the IMEIs in list from first on, and
-- returns the number of members changed, nil if unknown. An index of another type must not fail a
-- registration; reply() reports it.
local function index(command, list, first)
  if ARGV[4] ~= '1' or not list[first] then return end
  local n = redis.pcall(command, KEYS[3], unpack(list, first))
  return type(n) == 'number' and n or nil
end

-- reply(count, foreign, lost) -> { 'OK', 1 if the own heartbeat was absent, size of the index, time
-- of the witness' last hold that may have lost entries, 1 if the registry is missing, count,
-- foreign }: in O(1), the signs that Redis lost something. count and foreign are the script's.
local function reply(count, foreign, lost)
  local size = redis.pcall('SCARD', KEYS[3])
  return { 'OK', token == ARGV[2] and 0 or 1, type(size) == 'number' and size or -1,
    lost or witness_says('lost') or '', 1 - (exists or redis.call('EXISTS', KEYS[5])), count or 0, foreign or {} }
end

-- word(id) encodes an id for a message; see words.go.
local function word(id)
  if id == '' then return '%' end
  if not string.find(id, '[%c%% ]') and string.sub(id, 1, 1) ~= '/' then return id end
  id = string.gsub(id, '[%c%% ]', function(c) return string.format('%%%02X', string.byte(c)) end)
  return (string.gsub(id, '^/', '%%2F'))
end

-- tell(found, list, first) notifies former owners of the devices that they lost, on the channels
-- named like their heartbeats. An owner that misses it notices at its next check.
-- found: the previous entries of the IMEIs in list, from first on.
local function tell(found, list, first)
  local me, moved = ARGV[1], {}
  for i = 1, #found do
    local was = found[i]
    if was and was ~= '' and was ~= me then
      local theirs = moved[was] or {}
      theirs[#theirs + 1] = word(list[first + i - 1])
      moved[was] = theirs
    end
  end
  local channels = string.sub(KEYS[1], 1, #KEYS[1] - #ARGV[1])
  for was, theirs in pairs(moved) do redis.pcall('PUBLISH', channels .. was, table.concat(theirs, ' ')) end
end
-- beat.lua: the heartbeat (after settings.lua and owner.lua).
-- ARGV[5] the owner's GRACE, ms  ARGV[6] '1': since its last beat this owner was refused while its
-- keys moved
-- Extra: bits of what this user may not do, and scripts silently omit: 1 maintain the roster or the
-- index, 2 notify other owners.
local at = assert_life()
local lost, emptied = tell_grace(KEYS[4], ARGV[5], at, string.sub(ARGV[2], 1, 16))
if emptied then -- writers without scripts do not clear that record; see found_gone
  exists = redis.call('EXISTS', KEYS[5])
  if exists == 1 then redis.pcall('HDEL', KEYS[4], 'emptied') end
end
if ARGV[6] == '1' then lost = tell_gap(KEYS[4], at) end
local rights = may('SADD', KEYS[2], 'x') and may('SREM', KEYS[2], 'x')
if ARGV[4] == '1' then rights = rights and may('SADD', KEYS[3], 'x') and may('SREM', KEYS[3], 'x') end
return reply((rights and 0 or 1) + (may('PUBLISH', KEYS[1], 'x') and 0 or 2), nil, lost)
