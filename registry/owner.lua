-- owner.lua: the prelude of every script by which an owner writes. It makes sure that this process
-- is still the newest life of its instance id.
--
-- A boot token is 26 digits: the server's time in µs when the process first reached it (16), then
-- random (10). Tokens have one width and digits only, so they compare as strings in any locale. The
-- newest boot of an instance id wins: a higher token in the heartbeat ends the script, a lower one
-- is replaced.
--
-- KEYS[1] heartbeat  KEYS[2] roster  KEYS[3] index  KEYS[4] witness  KEYS[5] registry
-- ARGV[1] instance   ARGV[2] boot token  ARGV[3] heartbeat TTL ms  ARGV[4] '1': the index is kept
-- ARGV[5..] the script's own
-- Result: { 'SUPERSEDED' }, or what reply() makes.
local held = redis.pcall('GET', KEYS[1])
local token = type(held) == 'string' and string.match(held, '/(%d+)$')

local function server_ms()
  local t = redis.call('TIME')
  return string.format('%.0f', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
end

-- A token of a year ahead of the clock is of no boot: see boot_time in settings.lua.
if token and #token == 26 and token > ARGV[2] and
  tonumber(string.sub(token, 1, 16)) <= (server_ms() + 366 * 86400000) * 1000 then return { 'SUPERSEDED' } end

-- assert_life() is the first write of a script that writes entries (S5): no entry without the
-- proof of life behind it. SET is refused when memory is full, and the script with it. It returns
-- the server's time, ms.
local function assert_life()
  local ms = server_ms()
  redis.call('SET', KEYS[1], ms .. '/' .. ARGV[2], 'PX', ARGV[3])
  -- A roster that is no set must not keep anybody from registering.
  redis.pcall('SADD', KEYS[2], ARGV[1])
  return ms
end

-- may(command, key, ...) returns whether this user may run a command. acl_check_cmd raises an error
-- for a command that the server's configuration renames: nobody may run it. Redis 6 and miniredis
-- have no acl_check_cmd.
local function may(...)
  if not redis.acl_check_cmd then return true end
  local known, allowed = pcall(redis.acl_check_cmd, ...)
  return known and allowed
end

-- witness_says(field): the beginning of what the witness says, false if it does not: it is no hash, or this user may
-- not read it.
local function witness_says(field)
  local v = redis.pcall('HGET', KEYS[4], field)
  return type(v) == 'string' and string.sub(v, 1, 64)
end

-- found_gone() precedes the first entry that a script writes. Where there is no registry it warns
-- every owner, by the witness: the entry that follows would hide from them that it was lost. The
-- release or the sweep that took the last entry out has recorded that the registry is empty: then
-- nothing was lost. Such a record counts once, and not if entries may have been lost since; a beat
-- that finds a registry deletes it.
-- (Without a witness nobody has listened yet, and its first tick will say the same.)
local exists -- 1: there is a registry now; nil: not asked
local function found_gone()
  exists = 1
  if redis.call('EXISTS', KEYS[5]) == 1 or not witness_says('last') then return end
  local emptied, lost = tonumber(witness_says('emptied') or ''), tonumber(witness_says('lost') or '')
  if emptied then redis.pcall('HDEL', KEYS[4], 'emptied') end
  if not emptied or emptied < (lost or 0) then redis.pcall('HSET', KEYS[4], 'lost', server_ms()) end
end

-- index(command, list, first) keeps the reverse index of the IMEIs in list, from the first on. The
-- full scan does without the index. So an index of another type does not make a registration fail;
-- reply() tells of it. It returns how many members came or went, nil where that is not known.
local function index(command, list, first)
  if ARGV[4] ~= '1' or not list[first] then return end
  local n = redis.pcall(command, KEYS[3], unpack(list, first))
  return type(n) == 'number' and n or nil
end

-- reply(count, foreign, lost) -> { 'OK', 1 if the own heartbeat was absent, size of the index, the
-- witness' last hold that may have lost entries, 1 if there is no registry, count, foreign }: what
-- an owner must know, in O(1), to see that Redis lost something. count and foreign are the
-- script's.
local function reply(count, foreign, lost)
  local size = redis.pcall('SCARD', KEYS[3])
  return { 'OK', token == ARGV[2] and 0 or 1, type(size) == 'number' and size or -1,
    lost or witness_says('lost') or '', 1 - (exists or redis.call('EXISTS', KEYS[5])), count or 0, foreign or {} }
end

-- word(id) returns an id as a word of a message; see words.go.
local function word(id)
  if id == '' then return '%' end
  if not string.find(id, '[%c%% ]') and string.sub(id, 1, 1) ~= '/' then return id end
  id = string.gsub(id, '[%c%% ]', function(c) return string.format('%%%02X', string.byte(c)) end)
  return (string.gsub(id, '^/', '%%2F'))
end

-- tell(found, list, first) tells former owners at once which devices they lost, on a channel of the
-- name of their heartbeat. An owner that does not receive it finds out at its next check. Where
-- publishing is not allowed nobody receives it.
-- found: what the entries of the IMEIs in list, from the first on, were before.
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
