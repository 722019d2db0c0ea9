-- heard.lua: stored heartbeats. Included after keys.lua and iso.lua, not a script of its own.

-- ahead is how far (ms) the clock that dated a heartbeat may have been ahead. Later times are
-- ignored.
local ahead = 86400000

-- longest is the length of the longest id (bytes). A longer member of a set is none of ours.
local longest = 64

-- mistyped(reply) reports whether a pcall found a key of another type. It raises other errors.
local function mistyped(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err) end
  return true
end

-- start(key, last) returns the bytes of a string up to an index, or an error. A value that somebody
-- made large must not be read whole: it would keep everybody waiting. The index is a string, as
-- Redis formats each number that it gets from Lua, which takes longer than the reading.
local function start(key, last) return redis.pcall('GETRANGE', key, '0', last) end

-- heard(id, latest) returns a mitra's heartbeat, or '' if there is none. The second result is
-- true if the key holds something else: another type, no time, or a time after latest.
local function heard(id, latest)
  local at = start(heartbeat(id), '24')
  if at == '' then return '', redis.call('EXISTS', heartbeat(id)) == 1 end
  if mistyped(at) or #at ~= 24 or at > latest
    or not string.find(at, '^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$') then
    return '', true
  end
  return at, false
end

-- A mitra whose heartbeat was overwritten was heard at a time that is lost. The key
-- mitra:unheard:{id} excuses its silence until it has been silent for long enough from then on.
local function excuse(id, now)
  redis.call('SET', unheard(id), string.format('%.0f', now), 'PX', ahead)
end

local function excused(id, now, stale)
  local at = start(unheard(id), '16')
  if mistyped(at) or #at > 16 or not string.find(at, '^%d+$') then return false end
  return tonumber(at) <= now and now - tonumber(at) < stale
end
