-- witness.lua: observes the server (after server.lua and settings.lua). Prefix of tick.lua,
-- guard.lua.
--
-- listen() stores that the server is awake, and returns since when it has been observed without a
-- hold. Every hold is one act: since = now, with its reason.
--
--   gap        the last tick is longer ago than GAP, lies in the future, or is missing
--   restarted  the server is another than at the last tick: its run id differs, or a counter that
--              only grows has fallen (restart, promoted replica, CONFIG RESETSTAT)
--   settings   GAP or GRACE differ from the last tick's, or from those of an owner that beat since
--
-- The witness is a hash. All its times are the server's, in ms:
--   since          observed without a hold since then
--   last           the last tick
--   gap, grace     settings of the last tick; grace 0: an owner's beat disagreed (settings.lua)
--   server, replication, connections, commands, refused, evicted_keys
--                  server()'s values at the last tick that could read them
--   refused_at     when clients were last turned away ('refused' grew), or a tick could not read
--                  their number although it is on record: a live owner may be unable to beat
--   evicted_at     likewise of evicted keys: what a sweep looks for may have been among them
--   hold, reason   the last hold
--   lost           when Redis may last have lost entries: a hold of reason gap, restarted or
--                  self_check, or an owner was about to write an entry and found no registry.
--                  Owners check their claims when it changes
--   evicted_total  entries evicted, ever: the total kept beside the log
--   boot           the highest time in any boot token, µs: the next boot draws a higher one
--   emptied        when an owner's last release, or a sweep, emptied the registry
local fields = { 'since', 'last', 'gap', 'grace', 'server', 'replication', 'connections', 'commands', 'refused',
  'refused_at', 'evicted_keys', 'evicted_at', 'hold', 'reason', 'lost', 'evicted_total', 'boot', 'emptied' }

local function text(n) return string.format('%.0f', n) end

local function kind(key)
  local t = redis.call('TYPE', key)
  return type(t) == 'table' and t.ok or t
end

-- read(key) -> the witness by field, or the error.
local function read(key)
  local found, w = redis.pcall('HMGET', key, unpack(fields)), {}
  if found.err then return found end
  for i, field in ipairs(fields) do w[field] = found[i] or nil end
  return w
end

-- checks_off(id, refused, evicted) -> the checks that server()'s values do not allow.
local function checks_off(id, refused, evicted)
  local off = {}
  if not refused or refused == '' then off[#off + 1] = 'refused' end
  if not evicted or evicted == '' then off[#off + 1] = 'redis_evicting' end
  if not id or id == '' then off[#off + 1] = 'restarted' end
  return off
end

-- fell(was, is) reports whether a counter that only grows has fallen.
local function fell(was, is) return was and is ~= '' and tonumber(is) < (tonumber(was) or 0) end

-- The witness writes nothing longer, in bytes. Replicas read it again and again, so a longer value
-- is somebody's, and is deleted.
local longest = 64

-- listen(key, gap, grace, aside) -> now, since, w: deletes may begin GRACE after since. A key of
-- another type may be somebody's, and is renamed to aside. Without that name, or if it is taken,
-- nothing is written, and this is a hold until a tick has done so. w has the fields as strings, and
-- in off the checks that this client cannot make.
local function listen(key, gap, grace, aside)
  local now, w = math.floor(server_us() / 1000), read(key)
  local at = text(now)
  if w.err then -- not a hash: it must neither wipe nor jam
    if kind(key) == 'hash' then error(w.err) end -- not allowed
    if not aside or redis.call('EXISTS', aside) == 1 then
      return now, now, { reason = 'gap', off = checks_off() }
    end
    redis.call('RENAME', key, aside)
    w = {}
  end
  local too_long = {} -- '' is what no tick wrote either
  for field, value in pairs(w) do
    if #value > longest then too_long[#too_long + 1], w[field] = field, '' end
  end
  local id, replication, connections, commands, refused, evicted = server(w.server, w.replication)
  local set = { 'last', at }
  local function put(field, value) -- unchanged fields are not written again
    if value ~= '' and w[field] ~= value then
      set[#set + 1], set[#set + 2], w[field] = field, value, value
    end
  end

  local since, last, reason = count(w.since), count(w.last), nil
  if not since or not last or since > now or last > now or now - last > tonumber(gap) then
    reason = 'gap'
  elseif id ~= '' and w.server ~= id or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused) then
    reason = 'restarted'
  elseif (w.gap and w.gap ~= gap) or (w.grace and w.grace ~= grace) then
    reason = 'settings'
  end
  if reason then
    since = now
    put('since', at)
    put('hold', at)
    put('reason', reason)
    if reason ~= 'settings' then put('lost', at) end
  end
  if w.refused and w.refused ~= refused or (count(w.refused_at) or 0) > now then put('refused_at', at) end
  if w.evicted_keys and w.evicted_keys ~= evicted or (count(w.evicted_at) or 0) > now then put('evicted_at', at) end
  put('gap', gap)
  put('grace', grace)
  put('server', id)
  put('replication', replication)
  put('connections', connections)
  put('commands', commands)
  put('refused', refused)
  put('evicted_keys', evicted)
  -- HINCRBY after the log record must not fail: a total that is not a number restarts at 0.
  if w.evicted_total and not count(w.evicted_total) then put('evicted_total', '0') end
  -- The first write of every script that listens. Redis refuses it, and with it the script, when
  -- memory is full: if heartbeats cannot be written, a missing one must delete nothing.
  redis.call('HSET', key, unpack(set))
  for _, field in ipairs(too_long) do
    if w[field] == '' then redis.call('HDEL', key, field) end
  end
  w.off, w.reason = checks_off(id, refused, evicted), brief(w.reason)
  return now, since, w
end
