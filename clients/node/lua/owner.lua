-- owner.lua: the prelude of every script with which an owner writes (after record.lua, which has
-- KEYS and ARGV). It checks that this process is still the newest life of its instance id, and that
-- this server is not a former primary.
--
-- A boot token is 26 digits, which compare as strings in any locale: the server's time in µs when
-- the process first reached it (16), then random (10). A higher token in the heartbeat ends the
-- script, a lower one is replaced.
--
-- Result: { 'SUPERSEDED' }; READONLY, as an error; or the table built by reply().
local held = redis.pcall('GET', KEYS[1])
local token = type(held) == 'string' and string.match(held, '/(%d+)$')

-- A token a year ahead of the clock belongs to no boot; see boot_time in settings.lua.
if token and #token == 26 and token > ARGV[2] and
  tonumber(string.sub(token, 1, 16)) <= (server_ms() + 366 * 86400000) * 1000 then return { 'SUPERSEDED' } end

local wrong = former(KEYS[6], ARGV[1], ARGV[7])
if wrong then return wrong end

-- assert_life(beats) is the first write of a script that writes entries: every entry gets its proof
-- of life in the same step (S5). When memory is full, SET is refused and with it the script. It
-- returns the server's time, ms.
--
-- Other scripts than beats renew the record only if it is overdue, or lacks that this owner holds.
-- So writes through a connection that stayed at a former primary cannot hide that it lacks a beat.
local function assert_life(beats)
  local now = server_ms()
  redis.call('SET', KEYS[1], text(now) .. '/' .. ARGV[2], 'PX', ARGV[3])
  if beats then
    prove(now, ARGV[6])
  elseif state ~= 'h' or last > now or now - last >= due then
    prove(now, 'h')
  end
  -- A roster of another type must not keep anybody from registering.
  redis.pcall('SADD', KEYS[2], ARGV[1])
  return now
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
local function found_gone()
  if redis.call('EXISTS', KEYS[5]) == 1 or not witness_says('last') then return end
  local emptied, lost = tonumber(witness_says('emptied') or ''), tonumber(witness_says('lost') or '')
  if emptied then redis.pcall('HDEL', KEYS[4], 'emptied') end
  if not emptied or emptied < (lost or 0) then redis.pcall('HSET', KEYS[4], 'lost', text(server_ms())) end
end

-- index(command, list, first) updates the reverse index with the ids in list from first on. An
-- index of another type must not fail a registration; reply() reports it.
local function index(command, list, first)
  if ARGV[4] == '1' and list[first] then redis.pcall(command, KEYS[3], unpack(list, first)) end
end

-- reply(count, foreign, lost) -> { 'OK', last of the own record as it was found (0: there was none,
-- or another life has the heartbeat), last as it is now (0: none), size of the index (-1: no set),
-- when entries may last have been lost, count, foreign, the server's time in ms }: in O(1), the
-- signs that Redis lost something. count and foreign are the script's.
local function reply(count, foreign, lost)
  local size = redis.pcall('SCARD', KEYS[3])
  if token and token ~= ARGV[2] then found = nil end
  return { 'OK', found or 0, last or 0, type(size) == 'number' and size or -1, lost or witness_says('lost') or '',
    count or 0, foreign or {}, server_ms() }
end
