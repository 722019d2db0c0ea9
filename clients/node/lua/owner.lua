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

-- Returns the beginning of a field of the witness, or false: it is missing, the witness is not a
-- hash, or this user may not read it.
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

-- index(command, list, first) updates the reverse index with the ids in list from first on, and
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

-- Notifies former owners of the ids that they lost, on the channels named like their
--   heartbeats. An owner that misses it notices at its next check.
-- found: the previous entries of the ids in list, from first on.
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
